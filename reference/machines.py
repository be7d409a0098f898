"""GPUs as plain data: peak rates, sizes and where the numbers come from; and the roofline that follows from them.

Peaks are of dense fp16/bf16 tensor-core products with fp32 accumulation, in TFLOP/s (1e12); bandwidths in TB/s (1e12).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Peak rates as the module says, SMs, KiB of shared memory an SM, MiB of L2; ``measured``: not a data sheet's.

    arch is the compute capability (90 is sm_90), clock the boost clock in GHz at which the peak holds; matrix_rate the
    FLOP of matrix products, special the exp2 that an SM does a clock (CUDA C++ Programming Guide, "Arithmetic
    Instructions"; B200: FlashAttention-4, table 1); l2_tbs what the L2 delivers, None where nobody published it.
    """

    name: str
    tflops: float
    hbm_tbs: float
    sms: int
    shared: int
    l2: int
    source: str
    measured: bool = False
    arch: int = 90
    clock: float = 1.83
    matrix_rate: int = 4096
    special: int = 16
    l2_tbs: float | None = None

    @property
    def gpu(self) -> str:
        """The GPU's name, whether its figures are our own or a data sheet's."""
        return self.name.removesuffix(" measured")

    @property
    def balance(self) -> float:
        """FLOP a byte at which the roofline bends: below it memory is the limit, above it arithmetic."""
        return self.tflops / self.hbm_tbs

    def attainable(self, intensity: float) -> float:
        """TFLOP/s that ``intensity`` FLOP a byte allow: Williams, Waterman and Patterson 2009."""
        return min(self.tflops, intensity * self.hbm_tbs)

    def seconds(self, flop: float, bytes: float) -> float:
        """The least time for this much arithmetic and traffic when both overlap perfectly."""
        return max(flop / self.tflops, bytes / self.hbm_tbs) / 1e12


MACHINES = (
    Machine(
        "A100", 312.0, 2.039, 108, 164, 40, "NVIDIA A100 datasheet, 80 GB SXM", arch=80, clock=1.41, matrix_rate=2048
    ),
    Machine("H100", 989.4, 3.35, 132, 228, 50, "NVIDIA H100 datasheet, SXM", l2_tbs=12.0),
    Machine("H200", 989.4, 4.8, 132, 228, 50, "NVIDIA H200 datasheet, SXM"),
    Machine(
        "B200",
        2250.0,
        8.0,
        148,
        228,
        126,
        "NVIDIA HGX B200 datasheet, a GPU of eight",
        arch=100,
        clock=1.85,
        matrix_rate=8192,
    ),
    Machine(
        "T4", 65.0, 0.320, 40, 64, 4, "NVIDIA Turing whitepaper, Tesla T4 table", arch=75, clock=1.59, matrix_rate=1024
    ),
    Machine(
        "RTX 4090",
        165.2,
        1.008,
        128,
        100,
        72,
        "NVIDIA Ada whitepaper, fp32 accumulation",
        arch=89,
        clock=2.52,
        matrix_rate=512,
    ),
    Machine(
        "H200 measured", 803.0, 4.30, 132, 228, 60, "bf16 matmul; a copy, read + written", True, clock=1.9, l2_tbs=7.9
    ),
)
MACHINE = {machine.name: machine for machine in MACHINES}

OTHERS = (  # GPUs that chapter 5 compiles for beside those of the table
    Machine(
        "RTX 3090",
        71.2,
        0.936,
        82,
        100,
        6,
        "NVIDIA GA102 whitepaper, fp32 accumulation",
        arch=86,
        clock=1.695,
        matrix_rate=512,
    ),
    Machine(
        "RTX 5090",
        209.5,
        1.792,
        170,
        100,
        96,
        "NVIDIA RTX Blackwell whitepaper, fp32 accumulation",
        arch=120,
        clock=2.407,
        matrix_rate=512,
    ),
)
OF_ARCH = {  # one GPU for each architecture that kernels are compiled for without a GPU
    machine.arch: machine
    for machine in (
        MACHINE["A100"],
        OTHERS[0],
        MACHINE["RTX 4090"],
        MACHINE["H200 measured"],
        MACHINE["B200"],
        OTHERS[1],
    )
}


@dataclass(frozen=True)
class Level:
    """One level of the memory pyramid: bytes of the whole chip, and TB/s (None: not published)."""

    name: str
    bytes: int
    tbs: float | None
    source: str


PYRAMID = (  # of the H100
    Level("registers", 132 * 256 * 2**10, None, "256 KiB an SM"),
    Level("shared memory", 132 * 228 * 2**10, 31.0, "FlashAttention-3, table 1; 132 SMs x 128 B x 1.83 GHz"),
    Level("L2", 50 * 2**20, 12.0, "FlashAttention-3, table 1"),
    Level("HBM", 80 * 10**9, 3.35, "FlashAttention-3, table 1"),
)
