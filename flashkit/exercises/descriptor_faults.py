"""The fault bank of 07.descriptors: lab 03's, as it looks where whole key tiles have a loop of their own, unmasked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flashkit.exercises import forward_faults
from flashkit.exercises.contract import Fault
from flashkit.exercises.forward_faults import FAULT, Variant, change
from reference import forward
from reference.forward import Problem, Tile

NEXT_HEAD = Fault(
    "next-head-written",
    "O's descriptor sees all heads as one list of rows, so a tail tile is written into the next head",
    "A descriptor cuts a box at the end of the tensor that it describes. Where does head 0 end, if heads are no axis?",
)
LEFT_OUT = (  # what a descriptor cannot get wrong: it holds the strides, and where the tensor ends
    *("int32-overflow", "borrowed-stride", "other-missing", "tail-load-unmasked", "v-tail-unmasked"),
    *("tail-store-unmasked", "race"),
    "scale-of-another-dimension",  # there is one: d_v = d
)

Whole = Callable[[Problem, int], int]  # (problem, query tile) -> key tiles of the first loop, which has no mask


def _keys_of_first_row(p: Problem, i: int) -> int:
    return i * p.block_q + p.offset + 1 if p.causal else len(p.K)


def _whole(p: Problem, i: int) -> int:
    """Key tiles that every row of query tile i sees whole."""
    return min(len(p.K), max(0, _keys_of_first_row(p, i))) // p.block_k


def _unmasked(whole: Whole) -> Variant:
    """The first loop walks these key tiles, and none of their keys is hidden."""

    def visit(p: Problem, i: int) -> range:
        return range(max(whole(p, i), len(forward.visit(p, i))))

    def mask(S: np.ndarray, tile: Tile) -> np.ndarray:
        return S if tile.j < whole(tile.problem, tile.i) else forward.mask(S, tile)

    return change(visit=visit, mask=mask)


def _causal_or_all(of: Whole) -> Whole:
    return lambda p, i: of(p, i) if p.causal else _whole(p, i)


MASK_SKIPPED = Fault(
    "mask-skipped",
    "a tile that the first row of a query tile does not see whole goes without its mask",
    "Which is the last key that the *first* row sees? The first loop may walk only whole tiles up to there.",
    tuple(
        _unmasked(_causal_or_all(of))
        for of in (
            lambda p, i: len(p.K) // p.block_k,
            lambda p, i: min(len(p.K), i * p.block_q + 1) // p.block_k,
            lambda p, i: min(len(p.K), max(0, (i + 1) * p.block_q + p.offset)) // p.block_k,
            lambda p, i: min(len(p.K) // p.block_k, -(-max(0, _keys_of_first_row(p, i)) // p.block_k)),
        )
    ),
)
TAIL_UNMASKED = _unmasked(
    lambda p, i: min(p.key_tiles, max(0, _keys_of_first_row(p, i)) // p.block_k) if p.causal else p.key_tiles
)


def _in_second_loop(variant: Variant) -> Variant:
    """The mistake hides, or shows, keys in the tiles of the second loop alone: the first has no mask to get wrong."""
    wrong = variant.steps["mask"]

    def mask(S: np.ndarray, tile: Tile) -> np.ndarray:
        return S if tile.j < _whole(tile.problem, tile.i) else wrong(S, tile)

    return replace(variant, steps={**variant.steps, "mask": mask})


def _to_the_corner(p: Problem, i: int) -> range:
    """What both loops walk when the second one's end leaves out the offset."""
    end = min(len(p.K), (i + 1) * p.block_q) if p.causal else len(p.K)
    return range(max(_whole(p, i), -(-end // p.block_k)))


def _more(name: str) -> tuple[Variant, ...]:
    """Further spellings that there are where two loops are."""
    if name == "tail-mask-missing":
        return (TAIL_UNMASKED,)
    if name not in ("causal-top-left", "causal-strict", "causal-offset-sign", "causal-local-index"):
        return ()
    found = tuple(_in_second_loop(variant) for variant in FAULT[name].variants)
    short = replace(found[-1], steps={**found[-1].steps, "visit": _to_the_corner})
    return (*found, short) if name == "causal-top-left" else found


FAULTS = (
    NEXT_HEAD,
    MASK_SKIPPED,
    *(replace(fault, variants=fault.variants + _more(fault.name)) for fault in forward_faults.bank(*LEFT_OUT)),
)
