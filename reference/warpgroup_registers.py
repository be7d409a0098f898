"""Who gets an SM's registers when warpgroups have roles: setmaxnreg, and what a consumer's tiles take.

A warpgroup has 128 threads. At launch every thread of a block has the same number; then a producer gives most of its
own back and the consumers take them (PTX ISA, "setmaxnreg": multiples of 8, 24 to 256). FlashAttention-3: 24 and 240
with two consumers, 32 and 160 with three.
"""

from __future__ import annotations

from dataclasses import dataclass

WARPGROUP, REGISTERS = 128, 65536
LEAST, MOST, UNIT = 24, 255, 8


@dataclass(frozen=True)
class Split:
    """Registers a thread: at entry for all, then for the producer and for each of the consumers."""

    consumers: int
    entry: int
    producer: int
    consumer: int

    @property
    def taken(self) -> int:
        """Of the SM's 65,536, after setmaxnreg."""
        return WARPGROUP * (self.producer + self.consumers * self.consumer)


def at_entry(warpgroups: int) -> int:
    """The most registers a thread that so many warpgroups can be launched with: a multiple of 8."""
    return min(MOST, REGISTERS // (WARPGROUP * warpgroups)) // UNIT * UNIT


def split(consumers: int, producer: int = LEAST) -> Split:
    """The largest consumers beside one producer warpgroup that keeps ``producer`` registers a thread.

    Raises ValueError where setmaxnreg takes no such number.
    """
    if producer % UNIT or not LEAST <= producer <= MOST:
        raise ValueError(f"setmaxnreg takes multiples of {UNIT} from {LEAST} on, not {producer}")
    if consumers < 1:
        raise ValueError(f"there must be a consumer, not {consumers}")
    entry = at_entry(consumers + 1)
    pool = entry * (consumers + 1) - producer  # a block owns what it was launched with, and no more
    return Split(consumers, entry, producer, min(MOST, pool // consumers) // UNIT * UNIT)


def tile(rows: int, columns: int, bytes: int) -> int:
    """Registers a thread for a (rows, columns) tile of elements of so many bytes, spread over one warpgroup."""
    return rows * columns * bytes // 4 // WARPGROUP


def consumer(keys: int, d: int, rows: int = 64, overlap: bool = True) -> dict[str, int]:
    """Registers a thread that one consumer's tiles take: S and O in fp32, P in 16 bits.

    With ``overlap`` P of one block is still read while S of the next is made; without, P is made in the place of S.
    """
    taken = {"S": tile(rows, keys, 4), "O": tile(rows, d, 4)}
    return taken | ({"P": tile(rows, keys, 2)} if overlap else {})
