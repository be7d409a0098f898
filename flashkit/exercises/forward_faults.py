"""The fault bank of the attention forward: named mistakes, each a change of one step of the tiled oracle.

Shared by every lab that writes a forward. A variant is one way a kernel can spell the mistake; a mistake that
only the meter can see (an address, a race) has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flashkit.exercises.contract import Fault, chosen
from reference import forward
from reference.forward import State, Tile, finite

LN2, LOG2E = np.log(2.0), np.log2(np.e)


@dataclass(frozen=True)
class Variant:
    """One spelling of a mistake: changed steps, or changed inputs to them.

    scale    (d, d_v, scale) -> the scale the kernel uses
    kv_head  (h, H_q, H_kv) -> the K/V head it reads, which may lie past the last one
    borrowed (tensor, owner, axes): tensor is read with owner's strides along these axes
    first    (tensors, axis): of these tensors only the first batch (axis 0) or head (axis 1) is read
    """

    steps: Mapping[str, Callable] = field(default_factory=dict)
    scale: Callable | None = None
    kv_head: Callable | None = None
    borrowed: tuple[str, str, tuple[int, ...]] | None = None
    first: tuple[str, int] | None = None


def change(**steps) -> Variant:
    return Variant(steps)


def _alpha(state, m_new, base=np.exp):
    return base(state.m - finite(m_new))


def either_order(*variants: Variant) -> tuple[Variant, ...]:
    """The variants for a kernel that walks the keys from left to right, and for one from right to left."""
    return variants + tuple(replace(v, steps={**v.steps, **BACKWARDS}) for v in variants)


def guarded_or_not(*variants: Variant) -> tuple[Variant, ...]:
    """The variants for a kernel that never divides by 0, and for one that does."""
    return variants + tuple(replace(v, steps={**v.steps, "finish": _divide_unguarded}) for v in variants)


def _causal(visible_of: Callable[[Tile], np.ndarray]) -> tuple[Variant, ...]:
    """A kernel that hides other keys than it should, and visits what it needs for that, or what would be right."""

    def mask(S, tile):
        if not tile.problem.causal:
            return forward.mask(S, tile)
        return np.where(tile.inside & visible_of(tile), S, S.dtype.type(-np.inf))

    return change(mask=mask, visit=lambda p, i: range(p.key_tiles)), change(mask=mask)


def _causal_only(tile: Tile) -> np.ndarray:
    """The causal condition alone, also for columns that are padding."""
    p = tile.problem
    return tile.keys[None] <= tile.rows[:, None] + (p.offset if p.causal else tile.keys[-1])


def _keys_seen(p, i: int) -> int:
    """One past the last key that query tile i's last row may see."""
    return min(len(p.K), max(0, (i + 1) * p.block_q + p.offset)) if p.causal else len(p.K)


def _bound(tiles_of: Callable) -> Variant:
    """A kernel whose causal loop visits ``tiles_of(problem, i)`` key tiles."""

    def visit(p, i):
        return range(min(p.key_tiles, max(0, tiles_of(p, i)))) if p.causal else forward.visit(p, i)

    return change(visit=visit)


def _divide_unguarded(state: State):
    return state.acc / state.l[:, None], state.m + np.log(state.l)


def _lse_of_positive(state: State):
    """lse is -inf unless l > 0, so that a NaN shows in the output only."""
    O, lse = forward.finish(state)
    return O, np.where(state.l > 0, lse, -np.inf)


def _hidden_as(value: float):
    return lambda S, tile: np.where(tile.visible, S, S.dtype.type(value))


def _hidden_by_adding(value: float, tail: bool):
    """A finite bias is added to scores that the mask hides; ``tail``: also past the end, where else they are -inf."""
    return lambda S, tile: np.where(
        tile.inside | tail, S + np.where(tile.visible, S.dtype.type(0), S.dtype.type(value)), S.dtype.type(-np.inf)
    )


def _forget_where_nothing_is_seen(s, m):
    """alpha is set to 0 where m_new is -inf, as a guard; with a tile's own maximum that drops the old sums."""
    alpha = np.where(np.isneginf(m), m.dtype.type(0), _alpha(s, m))
    return State(m, alpha * s.l, alpha[:, None] * s.acc)


def _summed_low(state, P, tile):
    low = P.astype(tile.problem.arithmetic.operand)
    right = forward.accumulate(state, P, tile)
    return replace(right, l=state.l + low.sum(axis=1, dtype=low.dtype).astype(state.l.dtype))


def _normalised(state, P, tile):
    right = forward.accumulate(state, P, tile)
    return replace(right, acc=right.acc / right.l[:, None])


def _normalised_guarded(state, P, tile):
    right = forward.accumulate(state, P, tile)
    return replace(right, acc=right.acc / np.where(right.l == 0, right.l.dtype.type(1), right.l)[:, None])


def _exp2(lse):
    return change(
        weights=lambda S, m: np.exp2(S - finite(m)[:, None]),
        rescale=lambda s, m: State(m, _alpha(s, m, np.exp2) * s.l, _alpha(s, m, np.exp2)[:, None] * s.acc),
        finish=lambda s: (forward.finish(s)[0], np.where(s.l == 0, -np.inf, lse(s))),
    )


def _lse(lse):
    return change(finish=lambda s: (forward.finish(s)[0], np.where(s.l == 0, -np.inf, lse(s))))


NO_MAX = {
    "new_max": lambda m, S, tile: np.zeros_like(m),
    "init": lambda *a: replace(forward.init(*a), m=np.zeros(a[0], a[2])),
}
FROM_ZERO = {"init": lambda *a: replace(forward.init(*a), m=np.zeros(a[0], a[2]))}
RAW_WEIGHTS = {"weights": lambda S, m: np.exp(S - m[:, None])}
RAW_ALPHA = {
    "rescale": lambda s, m: State(m, np.exp(s.m - m) * s.l, np.exp(s.m - m)[:, None] * s.acc),
}
BACKWARDS = {"visit": lambda p, i: list(forward.visit(p, i))[::-1]}
LOWEST_HALF, LOWEST = float(np.finfo(np.float16).min), float(np.finfo(np.float32).min)
FINITE_MASKS = (-1e4, LOWEST_HALF, -1e5, -1e6, -1e7, -1e8, -1e9, -1e10, -1e20, -1e30, LOWEST)
BIASES = (-1e4, -1e6, -1e9, -1e30)


FAULTS = (
    Fault(
        "rescale-numerator-only",
        "the old numerator is rescaled by alpha but the old denominator is not",
        "Both running sums were built with the old maximum. What must happen to each when it changes?",
        either_order(change(rescale=lambda s, m: State(m, s.l, _alpha(s, m)[:, None] * s.acc))),
    ),
    Fault(
        "rescale-denominator-only",
        "the old numerator is not rescaled by alpha, only the denominator is",
        "acc was built with the old maximum too. Compare how you update l and how you update acc.",
        either_order(change(rescale=lambda s, m: State(m, _alpha(s, m) * s.l, s.acc))),
    ),
    Fault(
        "rescale-neither",
        "neither old sum is rescaled when the maximum grows",
        "What do exp(s - 2) and exp(s - 3) have in common? Old sums must move to the new frame first.",
        either_order(change(rescale=lambda s, m: State(m, s.l, s.acc))),
    ),
    Fault(
        "rescale-inverse",
        "old and new maximum change places: alpha = exp(m_new - m_old), or P = exp(S - m_old)",
        "Neither alpha nor a weight of P may exceed 1: old sums move to the new maximum, P is relative to it.",
        either_order(
            change(rescale=lambda s, m: _inverse(s, m, True)),
            change(rescale=lambda s, m: _inverse(s, m, False)),
        ),
    ),
    Fault(
        "own-max",
        "a tile's own maximum is used where the running maximum belongs",
        "m_new is the maximum of the old m and this tile's row maximum.",
        either_order(
            change(new_max=lambda m, S, tile: S.max(axis=1)),
            change(new_max=lambda m, S, tile: S.max(axis=1), rescale=_forget_where_nothing_is_seen),
            change(new_max=lambda m, S, tile: S.max(axis=1), **RAW_ALPHA),
            change(new_max=lambda m, S, tile: S.max(axis=1), **RAW_ALPHA, **RAW_WEIGHTS),
            change(weights=lambda S, m: np.exp(S - finite(S.max(axis=1))[:, None])),
        ),
    ),
    Fault(
        "no-max",
        "no maximum is subtracted before exp",
        "exp overflows fp32 above 88. What can be subtracted from every score of a row without changing softmax?",
        tuple(change(**NO_MAX, finish=f) for f in (forward.finish, _divide_unguarded)),
    ),
    Fault(
        "max-from-zero",
        "the running maximum starts at 0 instead of -inf",
        "If every score of a row is -200, what is exp(score - 0)?",
        tuple(change(**FROM_ZERO, finish=f) for f in (forward.finish, _divide_unguarded)),
    ),
    Fault(
        "tail-mask-missing",
        "the last tile's columns past N_k are not masked: zeros that were loaded there count as keys",
        "A masked load gives 0, and exp(0 - m) is not 0. What must the *score* of a key that does not exist be?",
        (
            change(mask=lambda S, tile: np.where(tile.visible | ~tile.inside, S, S.dtype.type(-np.inf))),
            change(mask=lambda S, tile: np.where(_causal_only(tile), S, S.dtype.type(-np.inf))),
        ),
    ),
    Fault(
        "finite-mask-value",
        "hidden scores get a large negative number instead of -inf",
        "Real scores can be lower than your number, and in a row that sees nothing every hidden key then counts.",
        tuple(
            change(mask=_hidden_as(value), **more)
            for value in FINITE_MASKS
            for more in ({}, {"init": lambda *a, v=value: replace(forward.init(*a), m=np.full(a[0], v, a[2]))})
        )
        + tuple(change(mask=_hidden_as(value * LN2)) for value in FINITE_MASKS)  # scores in base 2
        + tuple(
            change(mask=_hidden_by_adding(value * unit, tail))
            for value in BIASES
            for unit in (1.0, LN2)
            for tail in (False, True)
        ),
    ),
    Fault(
        "mask-after-max",
        "the maximum is taken before the mask is applied",
        "A key that may not be seen must not set the maximum either: mask, then max, then exp.",
        guarded_or_not(
            change(new_max=lambda m, S, tile: np.maximum(m, tile.S.max(axis=1))),
            change(new_max=lambda m, S, tile: np.maximum(m, np.where(tile.inside, tile.S, -np.inf).max(axis=1))),
        ),
    ),
    Fault(
        "causal-top-left",
        "the causal mask ignores the offset (top-left alignment, j <= i)",
        "With N_q != N_k the diagonal does not start in the corner: key j is visible iff j <= i + offset.",
        _causal(lambda t: t.keys[None] <= t.rows[:, None]),
    ),
    Fault(
        "causal-strict",
        "the causal mask uses j < i + offset: a query cannot see its own key",
        "May a token attend to itself?",
        _causal(lambda t: t.keys[None] < t.rows[:, None] + t.problem.offset),
    ),
    Fault(
        "causal-offset-sign",
        "the causal offset has the wrong sign (j <= i - offset)",
        "offset = N_k - N_q is positive in decode, and the one query sees all keys.",
        _causal(lambda t: t.keys[None] <= t.rows[:, None] - t.problem.offset),
    ),
    Fault(
        "causal-local-index",
        "the causal mask compares positions inside the tile, not positions in the sequence",
        "Which key is column 0 of tile j? Which query is row 0 of tile i?",
        _causal(lambda t: t.keys[None] - t.keys[0] <= t.rows[:, None] + t.problem.offset)
        + _causal(lambda t: t.keys[None] <= t.rows[:, None] - t.rows[0] + t.problem.offset)
        + _causal(lambda t: t.keys[None] - t.keys[0] <= t.rows[:, None] - t.rows[0] + t.problem.offset),
    ),
    Fault(
        "causal-ignored",
        "the causal mask is not applied",
        "Which scores must become -inf when causal is on?",
        _causal(lambda t: np.ones((len(t.rows), len(t.keys)), bool)),
    ),
    Fault(
        "causal-bound-short",
        "the causal key loop ends too early",
        "Which is the last key that the tile's *last* row may see, and how many tiles of block_k is that, rounded up?",
        (
            _bound(lambda p, i: i + 1),
            _bound(lambda p, i: ((i + 1) * p.block_q + p.offset) // p.block_k),
            _bound(lambda p, i: -(-((i + 1) * p.block_q) // p.block_k)),
            _bound(lambda p, i: -(-((i + 1) * p.block_q - 1 + p.offset) // p.block_k)),
            _bound(lambda p, i: -(-((i + 1) * p.block_q - p.offset) // p.block_k)),
            _bound(lambda p, i: -(-((i + 1) * p.block_k + p.offset) // p.block_k)),
            _bound(lambda p, i: -(-(i * p.block_q + p.offset + 1) // p.block_k)),
            _bound(lambda p, i: -(-(i * p.block_q + p.offset) // p.block_k)),
            _bound(lambda p, i: (i * p.block_q + p.offset) // p.block_k),
        ),
    ),
    Fault(
        "empty-row-nan",
        "a row that has seen no key yet computes -inf - -inf, which is NaN",
        "While m is still -inf, exp(S - m) and exp(m_old - m_new) are NaN. Subtract 0 there instead.",
        (
            change(**RAW_WEIGHTS),
            change(**RAW_ALPHA),
            change(**RAW_WEIGHTS, **RAW_ALPHA),
            change(**RAW_WEIGHTS, **RAW_ALPHA, finish=_divide_unguarded),
            change(**RAW_WEIGHTS, **RAW_ALPHA, **BACKWARDS),
            change(**RAW_WEIGHTS, **BACKWARDS),
            change(**RAW_ALPHA, **BACKWARDS),
            change(**RAW_ALPHA, **BACKWARDS, finish=_lse_of_positive),
        ),
    ),
    Fault(
        "empty-row-division",
        "a row that sees no key divides 0 by 0",
        "For a row that may see nothing l stays 0. What should its output and its lse be?",
        (change(finish=_divide_unguarded),),
    ),
    Fault(
        "scale-missing",
        "the scores are not multiplied by the scale 1/sqrt(d)",
        "Look at what multiplies Q K^T.",
        (Variant(scale=lambda d, d_v, scale: 1.0),),
    ),
    Fault(
        "scale-twice",
        "the scale is applied twice",
        "Is Q already scaled when you scale the scores?",
        (Variant(scale=lambda d, d_v, scale: scale * scale),),
    ),
    Fault(
        "scale-of-another-dimension",
        "the scale comes from another dimension than sqrt(d)",
        "The scale is 1/sqrt(d) with d the head dimension of Q and K, not of V, and with the root.",
        (
            Variant(scale=lambda d, d_v, scale: 1 / np.sqrt(d_v)),
            Variant(scale=lambda d, d_v, scale: np.sqrt(d)),
            Variant(scale=lambda d, d_v, scale: 1 / scale),
        ),
    ),
    Fault(
        "scale-argument-ignored",
        "the scale argument is ignored and 1/sqrt(d) is used",
        "The caller may pass another scale than 1/sqrt(d).",
        (Variant(scale=lambda d, d_v, scale: 1 / np.sqrt(d)),),
    ),
    Fault(
        "normalised-every-step",
        "the output is divided by l after every tile",
        "Divide once, after the last tile: until then acc is only a sum.",
        tuple(
            change(accumulate=normalise, **finish)
            for normalise in (_normalised, _normalised_guarded)
            for finish in ({}, {"finish": lambda s: (s.acc, forward.finish(s)[1])})
        ),
    ),
    Fault(
        "division-forgotten",
        "the output is never divided by the sum l",
        "acc is the sum of exp(s - m) v. What turns it into an average?",
        (change(finish=lambda s: (s.acc, forward.finish(s)[1])),),
    ),
    Fault(
        "lse-base-2",
        "lse is in base 2, or mixes bases",
        "lse is a natural logarithm: ln(l) + m, with m in the same units. log2 differs by a factor ln 2.",
        (
            _lse(lambda s: (s.m + np.log(s.l)) * LOG2E),
            _lse(lambda s: s.m + np.log2(s.l)),
            _lse(lambda s: s.m * LOG2E + np.log(s.l)),
            _lse(lambda s: s.m * LN2 + np.log(s.l)),
        ),
    ),
    Fault(
        "lse-without-m",
        "lse is ln(l) without the maximum m",
        "l was summed relative to m. How do you undo that in a logarithm?",
        (_lse(lambda s: np.log(s.l)), _lse(lambda s: np.log2(s.l))),
    ),
    Fault(
        "exp2-without-log2e",
        "exp2 is used where exp belongs, without the factor log2(e)",
        "exp(x) = exp2(x * log2(e)).",
        (
            _exp2(lambda s: s.m + np.log(s.l)),
            _exp2(lambda s: s.m + np.log2(s.l)),
            _exp2(lambda s: (s.m + np.log2(s.l)) * LN2),
            _exp2(lambda s: s.m * LN2 + np.log(s.l)),
            change(weights=lambda S, m: np.exp2(S - finite(m)[:, None])),
        ),
    ),
    Fault(
        "gqa-head-map",
        "query heads read the wrong K/V head",
        "With 4 query heads and 2 K/V heads, heads 0 and 1 share K/V head 0: h // (H_q // H_kv).",
        (
            Variant(kv_head=lambda h, H_q, H_kv: h),
            Variant(kv_head=lambda h, H_q, H_kv: h % H_kv),
            Variant(kv_head=lambda h, H_q, H_kv: h // H_kv),
            Variant(kv_head=lambda h, H_q, H_kv: 0),
            Variant(kv_head=lambda h, H_q, H_kv: h % (H_q // H_kv) % H_kv),
        ),
    ),
    Fault(
        "borrowed-stride",
        "one tensor is read with another tensor's strides",
        "q, k and v may lie differently in memory. Does each pointer use its own tensor's strides?",
        tuple(
            Variant(borrowed=(tensor, owner, axes))
            for tensor, owner in (("v", "k"), ("k", "v"), ("k", "q"), ("v", "q"), ("q", "k"))
            for axes in ((0, 1, 2), (2,), (1,), (0,))
        ),
    ),
    Fault(
        "offset-forgotten",
        "the batch or the head is missing from a tensor's address, so that all of them read, or write, the first one's",
        "q and o move by b and h, k and v by b and their own head, each times its stride. Which term is not there?",
        (
            *(Variant(first=(tensors, 0)) for tensors in ("q", "k", "v", "kv", "qkv")),
            *(Variant(first=(tensors, 1)) for tensors in ("q", "k", "v", "qkv")),  # k and v alone: gqa-head-map
        ),
    ),
    Fault(
        "low-precision-sum",
        "the weights P are rounded to fp16 before they are summed into l",
        "l must be summed in fp32, from the weights before the cast that P V needs.",
        either_order(
            change(accumulate=_summed_low),
            change(
                accumulate=lambda s, P, t: forward.accumulate(
                    s, P.astype(t.problem.arithmetic.operand).astype(P.dtype), t
                )
            ),
        ),
    ),
    Fault(
        "key-tail-lost",
        "the last, partial key tile is never visited",
        "How many tiles of block_k does it take to cover N_k keys? Or, with a causal mask, the keys that are seen?",
        guarded_or_not(
            change(visit=lambda p, i: [j for j in forward.visit(p, i) if j < len(p.K) // p.block_k]),
            change(visit=lambda p, i: range(_keys_seen(p, i) // p.block_k)),
            change(visit=lambda p, i: list(forward.visit(p, i))[:-1]),
        ),
    ),
    Fault(
        "last-tile-twice",
        "the last key tile is counted twice",
        "Print the tile starts of one program. Is one of them there twice?",
        (change(visit=lambda p, i: [*forward.visit(p, i), *list(forward.visit(p, i))[-1:]]),),
    ),
    Fault(
        "first-tile-skipped",
        "the first key tile is never visited",
        "Where does your key loop start?",
        guarded_or_not(change(visit=lambda p, i: list(forward.visit(p, i))[1:])),
    ),
    # ---- what only the meter sees -------------------------------------------------------------------------
    Fault(
        "tail-load-unmasked",
        "a load runs past the end of the sequence",
        "Which lanes of the last tile have a row in the tensor? Give the load a mask, and `other`.",
    ),
    Fault(
        "v-tail-unmasked",
        "V is loaded past its last key",
        "P is 0 there, but 0 times garbage can be NaN: mask V's rows as well as K's.",
    ),
    Fault(
        "tail-store-unmasked",
        "a store runs past the last query row",
        "The last query tile is not full. Which rows may be written?",
    ),
    Fault(
        "other-missing",
        "a masked load has no `other`, and the undefined lanes reach the output",
        "On a GPU masked-off lanes hold anything; 0 times NaN is NaN. Say other=0.0.",
    ),
    Fault(
        "query-tail-lost",
        "the last, partial query tile is never computed",
        "How many programs does it take to cover N_q rows? Look at the grid.",
    ),
    Fault(
        "int32-overflow",
        "an offset is computed in 32 bits and wraps",
        "batch * stride can pass 2**31. Cast the index to tl.int64 before it is multiplied.",
    ),
    Fault(
        "race",
        "two programs write the same element, or one reads what another writes",
        "Programs run in any order. Which program owns which rows of the output?",
    ),
)


def _inverse(s: State, m: np.ndarray, zero_when_empty: bool) -> State:
    """alpha = exp(m_new - m_old); in the first tile either 0 (a guard) or what exp(+inf) * 0 gives."""
    alpha = np.exp(finite(m) - s.m)
    if zero_when_empty:
        alpha = np.where(np.isneginf(s.m), 0, alpha).astype(m.dtype)
    return State(m, alpha * s.l, alpha[:, None] * s.acc)


FAULT = {fault.name: fault for fault in FAULTS}

# Where no lse is returned the two cannot be told apart, so they are one mistake there.
EMPTY_ROW = Fault(
    "empty-row-nan",
    "a row that sees no key becomes NaN: -inf - -inf, or 0 divided by 0",
    "While m is -inf subtract 0 instead of m; when l is 0 at the end write 0.",
    FAULT["empty-row-nan"].variants + FAULT["empty-row-division"].variants,
)


def bank(*left_out: str) -> tuple[Fault, ...]:
    """All faults but the named ones: an exercise without heads has no head map to get wrong."""
    gone = {fault.name for fault in chosen(FAULTS, left_out)}
    return tuple(fault for fault in FAULTS if fault.name not in gone)
