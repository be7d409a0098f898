"""How many blocks of a kernel an SM holds at once, and which resource binds: registers, shared memory, warps, blocks.

Limits: NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Rules: NVIDIA's
calculator (cuda_occupancy.h of the CUDA toolkit): registers go to a warp in units of 256 and come from one of the SM's
four quarters; shared memory goes in units of 128 bytes, with 1 KiB a block for the system since compute capability 8.0.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """What one SM of an architecture holds; shared memory in bytes, ``block_shared`` of it at most for one block."""

    warps: int
    blocks: int
    shared: int
    block_shared: int
    registers: int = 65536
    block_registers: int = 65536
    thread_registers: int = 255


LIMITS: dict[int, Limits] = {  # by compute capability, 90 is sm_90
    53: Limits(64, 32, 64 * KIB, 48 * KIB, block_registers=32768),
    75: Limits(32, 16, 64 * KIB, 64 * KIB),
    80: Limits(64, 32, 164 * KIB, 163 * KIB),
    86: Limits(48, 16, 100 * KIB, 99 * KIB),
    89: Limits(48, 24, 100 * KIB, 99 * KIB),
    90: Limits(64, 32, 228 * KIB, 227 * KIB),
    100: Limits(64, 32, 228 * KIB, 227 * KIB),
    120: Limits(48, 24, 100 * KIB, 99 * KIB),
}
QUARTERS, BLOCK_WARPS = 4, 32  # parts of an SM with registers of their own; 1,024 threads a block
REGISTER_UNIT, SHARED_UNIT = 256, 128


@dataclass(frozen=True)
class Occupancy:
    """Blocks an SM holds, their warps, the share of its warp slots that they fill, and what binds.

    ``binds`` names every resource of which one more block would need too much; at 0 blocks, what one block has too
    much of.
    """

    blocks: int
    warps: int
    share: float
    binds: tuple[str, ...]


def occupancy(arch: int, warps: int, registers: int, shared: int) -> Occupancy:
    """Occupancy of a kernel with ``warps`` warps a block, ``registers`` a thread and ``shared`` bytes a block.

    Raises ValueError for an architecture without limits here, or for counts that no kernel can have.
    """
    if arch not in LIMITS:
        raise ValueError(f"no limits for sm_{arch}; there are sm_{', sm_'.join(map(str, LIMITS))}")
    if warps < 1 or registers < 0 or shared < 0:
        raise ValueError(f"warps must be at least 1 and the rest not negative: {warps=}, {registers=}, {shared=}")
    limits = LIMITS[arch]
    held = {
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared(arch, shared),
        "warps": limits.warps // warps if warps <= BLOCK_WARPS else 0,
        "blocks": limits.blocks,
    }
    blocks = min(held.values())
    binds = tuple(name for name, most in held.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, binds)


def system_shared(arch: int) -> int:
    """Bytes of shared memory that the system keeps for each block."""
    return KIB if arch >= 80 else 0


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    if registers > limits.thread_registers:
        return 0
    if registers == 0:
        return limits.blocks
    a_warp = _up(registers * 32, REGISTER_UNIT)
    if a_warp * _up(warps, QUARTERS) > limits.block_registers:  # a launch is checked as if each quarter took its share
        return 0
    return limits.registers // QUARTERS // a_warp * QUARTERS // warps


def _by_shared(arch: int, shared: int) -> int:
    limits, system = LIMITS[arch], system_shared(arch)
    if shared > limits.block_shared:
        return 0
    taken = _up(shared + system, SHARED_UNIT)
    return limits.shared // taken if taken else limits.blocks


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
