"""Predicts how long a launch takes, from its bytes, its trips, its compiled loop and the machine: one page.

Assumptions, each of which can fail (chapter 6 lists where they did):
 1. A trip round the main loop costs an SM the cycles of its busiest unit: schedulers, exp2, matrix unit, shared memory.
    Counts are of PTX; spilled words cost a store and a load a trip. Where ptxas, short of registers, laid the loop out
    in chains (instruments/stalls.py), a warp waits for what its siblings' instructions do not fill.
 2. A block alone goes from unit to unit: matrix work, arithmetic, shared memory, then waits at barriers. The n blocks
    of an SM queue at the units that others hold: a closed queueing network, whose trip is what mean value analysis
    gives (Reiser and Lavenberg 1980). Two blocks hide part of each other's waits, never all of them.
 3. A tile that is asked for s - 2 trips ahead (s stages) must come in that time; with two stages a trip waits for one
    latency, with one stage for two. Tiles that other programs read too come from L2, at a shorter latency.
 4. Blocks go to SMs as these become free, in launch order; the last wave runs with the blocks that are left.
 5. Every byte comes from HBM once; bytes read again come from L2, unless what programs re-read at one time is larger
    than the L2. What the launch before wrote is still in L2 as far as it fits.
 6. Memory and arithmetic overlap: the whole takes the `overlap`-norm of them; a launch costs a constant.

Checked on an H200 with 42 pairs of kernel, shape and tile that were chosen before the model was final and measured
after: 40 within 25 %, median error 10 % (benchmarks/results/confirmation-h200.json). A changed model needs a new grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

from flashkit.instruments.resources import Resources
from flashkit.instruments.workload import Work
from reference.machines import Machine

MIB = 2**20


@dataclass(frozen=True)
class Constants:
    """What no data sheet says, fitted on 15 pairs of an H200 (benchmarks/results/prediction-h200.json, role "fit")."""

    overlap: float = 6.5  # exponent of the norm: infinity is perfect overlap, 1 is none
    barrier: float = 89.0  # cycles that a block waits at each barrier
    shuffle: float = 20.0  # cycles until an exchange between lanes has come
    l2_latency: float = 650.0  # cycles
    hbm_latency: float = 2100.0
    setup: float = 600.0  # cycles of a block's life outside its loop: start, first tile, last store
    launch: float = 2.9e-6  # s
    l2_share: float = 0.7  # of the L2 that re-read tiles can keep


@dataclass(frozen=True)
class Prediction:
    """Seconds of a launch, what they are made of (seconds each, overlapping), and the unit that a trip waits for."""

    seconds: float
    parts: dict[str, float]
    binds: str


def predict(row: Resources, work: Work, machine: Machine, stages: int = 3, c: Constants | None = None) -> Prediction:
    """Seconds of one launch of the kernel ``row`` (compiled for the machine's architecture) that does ``work``."""
    c, held = c or Constants(), row.occupancy
    if held is None or held.blocks == 0:
        raise ValueError(f"{row.kernel} does not fit on sm_{row.arch}: there is no time to predict")
    programs = len(work.trips)
    resident = min(held.blocks, -(-programs // machine.sms))
    from_hbm = hbm_bytes(work, machine, c)
    units = trip_units(row, machine, c)
    latency = c.l2_latency + (c.hbm_latency - c.l2_latency) * min(1.0, from_hbm / max(work.requested, 1))

    busy = [units["matrix"], max(units["arithmetic"], units["exp2"]), units["shared memory"]]

    def trip(blocks: int) -> float:
        """Cycles in which each of ``blocks`` blocks on an SM goes once round its loop."""
        if stages <= 2:
            return queued(blocks, busy, units["waits"] + latency * (3 - stages))
        return max(queued(blocks, busy, units["waits"]), latency / (stages - 2))

    outside = _quarters(row) * (row.listing.whole.cycles - (row.listing.main.cycles if row.listing.main else 0))
    cycles = makespan(work.trips, machine.sms, resident, trip, lambda n: _norm(c.overlap, n * outside, c.setup))
    parts = {
        "arithmetic": cycles / (machine.clock * 1e9),
        "HBM": from_hbm / (machine.hbm_tbs * 1e12),
        "L2": work.requested / ((machine.l2_tbs or 3 * machine.hbm_tbs) * 1e12),
    }
    binds = max(parts, key=parts.get)
    busiest = max(units, key=units.get) if row.listing.main else "latency"
    return Prediction(c.launch + _norm(c.overlap, *parts.values()), parts, busiest if binds == "arithmetic" else binds)


def trip_units(row: Resources, machine: Machine, c: Constants) -> dict[str, float]:
    """Cycles that one block's trip takes of each unit of an SM, and ``waits``, in which it uses none."""
    loop, warps = row.listing.main, row.threads / 32
    if loop is None:
        return dict.fromkeys(("matrix", "arithmetic", "exp2", "shared memory", "waits"), 0.0)
    chained = max(0.0, row.listing.scheduled - _quarters(row) * loop.cycles)
    return {
        "matrix": warps * loop.matrix / machine.matrix_rate,
        "arithmetic": _quarters(row) * (loop.cycles + row.spills / 4 * 2),
        "exp2": _quarters(row) * loop.special * 32 / (machine.special / 4),
        "shared memory": warps * loop.shared / 128,
        "waits": loop.barriers * c.barrier + loop.shuffles * c.shuffle + chained,
    }


def hbm_bytes(work: Work, machine: Machine, c: Constants) -> float:
    """Bytes that cross HBM: each once, and the part of the re-reads that the L2 cannot keep."""
    room = c.l2_share * machine.l2 * MIB
    again = max(0, work.requested - work.distinct - work.written)
    missed = again * max(0.0, 1 - room / work.live) if work.live else 0.0
    return work.distinct - min(work.warm, room) + work.written + missed


def queued(blocks: int, units: Sequence[float], waits: float) -> float:
    """Cycles of a round of ``blocks`` that each need these cycles of each unit, one block at a time, and wait besides.

    Exact mean value analysis: a block that comes to a unit finds there what one block fewer would have left.
    """
    held, round_ = [0.0] * len(units), waits
    for n in range(1, blocks + 1):
        each = [need * (1 + there) for need, there in zip(units, held, strict=True)]
        round_ = waits + sum(each)
        held = [n * time / round_ if round_ else 0.0 for time in each]
    return round_


def makespan(trips: Sequence[int], sms: int, resident: int, trip, setup) -> float:
    """Cycles until the last program ends. ``trip`` and ``setup`` give a block's cycles when n blocks share its SM."""
    if min(trips) == max(trips):  # equal programs: full waves, then a wave of what is left
        full, left = divmod(-(-len(trips) // sms), resident)
        waves = [resident] * full + [left] * bool(left)
        return sum(trips[0] * trip(n) + setup(n) for n in waves)
    ends, each, start = [0.0] * (sms * resident), trip(resident), setup(resident)
    for count in trips:
        heapreplace(ends, ends[0] + count * each + start)
    return max(ends)


def _quarters(row: Resources) -> float:
    """Warps of a block that share one scheduler."""
    return max(1.0, row.threads / 32 / 4)


def _norm(power: float, *values: float) -> float:
    return sum(value**power for value in values) ** (1 / power)
