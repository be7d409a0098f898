"""One key block of attention in a Hopper SM's clock cycles, and FlashAttention-3's ablation in the simulator.

Rates a clock and SM are those of :mod:`reference.machines` (4,096 FLOP of products, 16 exp2) and, for the ALU, of the
CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions", compute capability 9.0: 128 additions
or multiply-adds, 64 maxima, 64 conversions. A consumer warpgroup has 64 query rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reference.machines import MACHINE, Machine
from reference.pipeline import Times, simulate
from reference.pipeline_programs import Made, attention, without_producer

ROWS = 64
ADDS, MAXIMA, CONVERSIONS = 128, 64, 64  # of an SM, a clock
LENGTHS = (16, 32)  # blocks of the two runs whose difference is the steady state

# FlashAttention-3, table 2: H100, fp16, B = 4, N = 8,448, H = 16, d = 128, full; milliseconds.
ABLATION = {"all of it": 3.538, "no overlap of softmax and products": 4.021, "no warp specialisation": 4.105}
SHAPE = {"B": 4, "N": 8448, "H": 16, "d": 128}
KEYS = 176  # of its tile: the official kernel's for d = 128, full

PROGRAMS: dict[str, Callable[[int], Made]] = {
    "all of it": lambda n: attention([n, n], 2, turns=True, overlap=True),
    "no overlap of softmax and products": lambda n: attention([n, n], 2, turns=True),
    "no warp specialisation": lambda n: without_producer(n, 2),
}


def step(keys: int, d: int, machine: Machine = MACHINE["H100"]) -> Times:
    """Cycles of one consumer's part of a block: a product, its exponentials, the rest of the softmax, a 16-bit copy.

    The copy comes from L2 at the rate that all SMs share (12 TB/s on an H100).
    """
    product = 2 * ROWS * keys * d / machine.matrix_rate
    scores = ROWS * keys
    rest = scores * (1 / MAXIMA + 2 / ADDS + 1 / CONVERSIONS) + ROWS * d / ADDS
    bytes_a_clock = (machine.l2_tbs or machine.hbm_tbs) * 1e12 / machine.sms / (machine.clock * 1e9)
    return Times(2 * keys * d / bytes_a_clock, product, scores / machine.special, rest)


def exp_share(d: int, machine: Machine = MACHINE["H100"]) -> float:
    """Cycles of a block's exponentials over those of its two products. It does not depend on the block."""
    times = step(128, d, machine)
    return times.exp / (2 * times.matmul)


def period(made: Callable[[int], Made], times: Times) -> float:
    """Cycles a block in the steady state: the ends of the loop are left out."""
    short, long = (simulate(*made(n), times).makespan for n in LENGTHS)
    return (long - short) / (LENGTHS[1] - LENGTHS[0])


def tflops(cycles: float, keys: int, d: int, consumers: int = 2, machine: Machine = MACHINE["H100"]) -> float:
    """TFLOP/s of all SMs when ``consumers`` do one block each in so many cycles."""
    flop = consumers * 4 * ROWS * keys * d
    return machine.sms * flop * machine.clock * 1e9 / cycles / 1e12


def measured(name: str) -> float:
    """TFLOP/s of a row of the paper's table: 4 B H N^2 d over its time."""
    s = SHAPE
    return 4 * s["B"] * s["H"] * s["N"] ** 2 * s["d"] / (ABLATION[name] * 1e-3) / 1e12


def simulated(name: str, latency: float = 0.0) -> float:
    """TFLOP/s of the same row in the simulator; ``latency`` cycles pass from a product's end to its reader."""
    times = replace(step(KEYS, SHAPE["d"]), latency=latency)
    return tflops(period(PROGRAMS[name], times), KEYS, SHAPE["d"])


def latency_for(name: str, target: float) -> float:
    """The latency at which a row is simulated at ``target`` TFLOP/s, to one cycle, by halving."""
    low, high = 0.0, 1e5
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(name, middle) > target else (low, middle)
    return high
