"""Chapter 5: what a tile of the fused forward needs on chip, and what that leaves of an SM. One tile, one block.

:class:`WorkingSet` is the paper's count (Dao et al. 2022, section 3.1; Dao 2023, section 3): it shows the direction.
:func:`estimate` guesses what a compiler makes of it; only ptxas knows (:mod:`flashkit.instruments.resources`).
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.occupancy import LIMITS, Occupancy, occupancy

FLOAT32 = 4  # bytes of an element of S and O, which are sums
COPY = 16  # bytes that a thread's widest copy moves
BOOKKEEPING = 24  # registers of a thread for m, l, indices and strides
WARPGROUPS = (90, 100)  # architectures whose matrix instructions read their tiles from shared memory
SPILLS = "registers of a thread"


@dataclass(frozen=True)
class WorkingSet:
    """Bytes of one query tile's work: Q_i, K_j and V_j; S; O."""

    inputs: int
    scores: int
    output: int

    @property
    def total(self) -> int:
        return self.inputs + self.scores + self.output


def working_set(block_q: int, block_k: int, d: int, d_v: int | None = None, itemsize: int = 2) -> WorkingSet:
    """Q_i ``(block_q, d)``, K_j ``(block_k, d)`` and V_j ``(block_k, d_v)`` of ``itemsize`` bytes; S and O in fp32."""
    d_v = d if d_v is None else d_v
    return WorkingSet(
        itemsize * (block_q * d + block_k * (d + d_v)), FLOAT32 * block_q * block_k, FLOAT32 * block_q * d_v
    )


@dataclass(frozen=True)
class Estimate:
    """A guess at one block: 32-bit registers a thread needs, bytes of shared memory, and what binds first."""

    registers: int
    shared: int
    occupancy: Occupancy
    binds: str

    @property
    def fits(self) -> bool:
        """No spill, and at least one block an SM."""
        return self.binds != SPILLS and self.occupancy.blocks > 0


def estimate(arch: int, block_q: int, block_k: int, d: int, warps: int = 4, stages: int = 2) -> Estimate:
    """Registers and shared memory of the fp16 forward with ``stages`` key tiles in flight, as Triton 3.7 has it."""
    registers, shared = (
        registers_a_thread(arch, block_q, block_k, d, warps),
        shared_bytes(arch, block_q, block_k, d, stages),
    )
    most = LIMITS[arch].thread_registers
    held = occupancy(arch, warps, min(registers, most), shared)
    return Estimate(registers, shared, held, SPILLS if registers > most and held.blocks else held.binds[0])


def shared_bytes(arch: int, block_q: int, block_k: int, d: int, stages: int) -> int:
    """Q_i, and K_j and V_j once a stage. With mma.sync one stage less, as tiles go on to registers.

    There P passes through shared memory too where several warps share its rows, which Triton has them do below 128.
    """
    queries, keys = 2 * block_q * d, 2 * 2 * block_k * d
    if arch in WARPGROUPS:
        return queries + stages * keys
    return queries + max(1, stages - 1) * keys + (2 * block_q * block_k if block_q < 128 else 0)


def registers_a_thread(arch: int, block_q: int, block_k: int, d: int, warps: int) -> int:
    """O and S in fp32, P in fp16, the addresses of the next K_j and V_j (8 bytes a copy); with mma.sync Q_i too."""
    words = block_q * d + block_q * block_k + block_q * block_k // 2
    words += 2 * (2 * 2 * block_k * d // COPY)
    if arch not in WARPGROUPS:
        words += block_q * d // 2
    return -(-words // (32 * warps)) + BOOKKEEPING
