"""Bytes between HBM and the chip so far, as pictures show them; they are those of reference.traffic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reference import traffic

SYMBOL = {"q": "Q", "k": "K", "v": "V", "s": "S", "p": "P", "o": "O", "lse": "lse"}
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass
class Moved:
    """Bytes so far per tensor, and what is moving now ("load Q", "store O")."""

    loaded: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    now: set[str] = field(default_factory=set)

    def load(self, tensor: str, nbytes: int) -> None:
        self.loaded[tensor] = self.loaded.get(tensor, 0) + nbytes
        self.now.add(f"load {tensor}")

    def store(self, tensor: str, nbytes: int) -> None:
        self.stored[tensor] = self.stored.get(tensor, 0) + nbytes
        self.now.add(f"store {tensor}")

    def next(self) -> Moved:
        """A copy in which nothing moves yet."""
        return Moved(dict(self.loaded), dict(self.stored))

    @property
    def total(self) -> int:
        return sum(self.loaded.values()) + sum(self.stored.values())


def naive_moves(shape: traffic.Shape) -> list[tuple[str, Moved]]:
    """The three kernels of :func:`reference.traffic.naive`, each reading and then writing, with a sentence each."""
    steps = [("nothing has moved", Moved())]
    entries = traffic.naive(shape)
    for number, step in enumerate(dict.fromkeys(entry.step for entry in entries), start=1):
        for verb, direction, nbytes in (("reads", "load", "read"), ("writes", "store", "written")):
            moved = steps[-1][1].next()
            mine = [entry for entry in entries if entry.step == step and getattr(entry, nbytes)]
            for entry in mine:
                getattr(moved, direction)(SYMBOL[entry.tensor], getattr(entry, nbytes))
            tensors = " and ".join(SYMBOL[entry.tensor] for entry in mine)
            steps.append((f"kernel {number} {verb} {tensors}", moved))
    return steps


def fused_moves(shape: traffic.Shape) -> list[tuple[str, Moved]]:
    """FlashAttention-2's order, without a mask: the first query tile in three moves, then the others by thirds."""
    first = {entry.tensor: entry for entry in traffic.fa2(replace(shape, N_q=shape.rows(0)))}
    steps = [("nothing has moved", Moved())]
    for says, tensors in (
        ("query tile 0 comes in", "q"),
        ("all of K and V stream past query tile 0", "kv"),
        ("O of tile 0 is written", ("o", "lse")),
    ):
        steps.append((says, _add(steps[-1][1].next(), [first[tensor] for tensor in tensors])))
    for third in (1, 2, 3):
        done = 1 + (shape.query_tiles - 1) * third // 3
        rows = min(done * shape.block_q, shape.N_q)
        moved = _add(Moved(), traffic.fa2(replace(shape, N_q=rows)))
        steps.append((f"{done:,} of {shape.query_tiles:,} query tiles are done", moved))
    return steps


def _add(moved: Moved, entries: Iterable[traffic.Entry]) -> Moved:
    for entry in entries:
        if entry.read:
            moved.load(SYMBOL[entry.tensor], entry.read)
        if entry.written:
            moved.store(SYMBOL[entry.tensor], entry.written)
    return moved


def size(nbytes: float) -> str:
    """Bytes in the largest binary unit that leaves at least 1: "512 MiB", "1.5 GiB", "96 B"."""
    for unit, value in UNITS:
        if nbytes >= value:
            shown = nbytes / value
            return f"{shown:,.0f} {unit}" if shown >= 100 or shown == int(shown) else f"{shown:.1f} {unit}"
    return f"{nbytes:,.0f} B"
