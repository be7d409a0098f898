"""The fault bank of the attention backward: named mistakes, each a change of one step of the tiled backward.

A variant is one way a kernel can spell the mistake. dQ, dK and dV are compared together, so that a mistake in one of
them alone has its own name. A mistake that only the meter can see (an address, a race) has no variant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flashkit.exercises.contract import Fault, chosen
from flashkit.exercises.forward_faults import FAULT as FORWARD
from reference import backward, forward
from reference.forward import Problem, Tile, finite

LOG2E = np.log2(np.e)
EVERYWHERE = ("D", "dkdv", "dq")


@dataclass(frozen=True)
class Variant:
    """One spelling of a mistake: changed steps of :class:`reference.backward.Steps`, or changed inputs to them.

    row_dot  (dO, O) -> D
    saved    steps of the forward that change what it saves for the backward, not what it returns
    scale    (d, scale) -> the scale the kernel uses
    kv_head  (h, H_q, H_kv) -> the K/V head it reads, which may lie past the last one
    borrowed (tensor, owner, axes): tensor is read with owner's strides along these axes; owner "contiguous": as if it
             were contiguous
    kernels  which of the kernels D, dkdv and dq hold the mistake
    """

    steps: Mapping[str, Callable] = field(default_factory=dict)
    row_dot: Callable | None = None
    saved: Mapping[str, Callable] = field(default_factory=dict)
    scale: Callable | None = None
    kv_head: Callable | None = None
    borrowed: tuple[str, str, tuple[int, ...]] | None = None
    kernels: tuple[str, ...] = EVERYWHERE


class CannotRun(Exception):
    """A wrong oracle that has no result for these tiles: the kernel would stop with an error there."""


def change(**steps) -> Variant:
    return Variant(steps)


# ---- changed P ------------------------------------------------------------------------------------------


def _scores(tile: Tile) -> np.ndarray:
    return forward.mask(forward.score(tile), tile)


def _weights(P_of: Callable) -> Variant:
    """P from the masked scores and lse; P of hidden keys is 0 where exp gives it."""
    return change(probabilities=lambda tile, lse: P_of(_scores(tile), finite(lse)[:, None]))


def _row_maximum(tile: Tile) -> np.ndarray:
    p = tile.problem
    S = np.where(p.visible[tile.rows], tile.Q_i @ np.asarray(p.K, tile.Q_i.dtype).T * p.scale, -np.inf)
    return finite(S.max(axis=1)).astype(tile.Q_i.dtype)


def _seen(visible_of: Callable[[Tile], np.ndarray], always: bool = False) -> tuple[Variant, ...]:
    """A kernel that hides other keys than it should, the tail masked right.

    It visits every tile or those that would be right; where a row's lse is -inf and a key is seen by mistake, P is inf
    unless 0 is subtracted instead.
    """

    def spelled(guard: Callable) -> Callable:
        def probabilities(tile, lse):
            if not (tile.problem.causal or always):
                return backward.probabilities(tile, lse)
            P = np.exp(forward.score(tile) - guard(lse)[:, None])
            return np.where(tile.inside & visible_of(tile), P, 0).astype(P.dtype)

        return probabilities

    every = {"visit": lambda p, i: range(p.key_tiles), "seen_by": lambda p, j: range(p.query_tiles)}
    return tuple(change(probabilities=spelled(guard), **walk) for guard in (finite, np.asarray) for walk in (every, {}))


def _tail_seen(tile: Tile, lse: np.ndarray) -> np.ndarray:
    """Columns past N_k are not masked: their K is 0, so their score is 0."""
    p = tile.problem
    causal = tile.keys[None] <= tile.rows[:, None] + (p.offset if p.causal else tile.keys[-1])
    S = np.where(causal, forward.score(tile), -np.inf).astype(tile.Q_i.dtype)
    return np.exp(S - finite(lse)[:, None])


# ---- changed loops --------------------------------------------------------------------------------------


def _from(first_tile: Callable[[Problem, int], int]) -> Variant:
    """A dK/dV kernel whose causal loop starts at another query tile."""

    def seen_by(p, j):
        return range(max(0, first_tile(p, j)), p.query_tiles) if p.causal else backward.seen_by(p, j)

    return change(seen_by=seen_by)


def _until(key_tiles: Callable[[Problem, int], int]) -> Variant:
    """A dQ kernel whose causal loop ends after another number of key tiles."""

    def visit(p, i):
        return range(min(p.key_tiles, max(0, key_tiles(p, i)))) if p.causal else forward.visit(p, i)

    return change(visit=visit)


def _query_tail_lost(p: Problem, j: int):
    return [i for i in backward.seen_by(p, j) if i < len(p.Q) // p.block_q]


def _key_tail_lost(p: Problem, i: int):
    return [j for j in forward.visit(p, i) if j < len(p.K) // p.block_k]


# ---- changed products -----------------------------------------------------------------------------------


def _scaled(**powers: int) -> Variant:
    """dQ or dK with the scale to another power than 1."""

    def product(old, tile, dS, right: Callable, power: int):
        factor = dS.dtype.type(tile.problem.scale) ** (power - 1)
        return old + (right(np.zeros_like(old), tile, dS)) * factor

    rights = {"key_gradient": backward.key_gradient, "query_gradient": backward.query_gradient}
    return change(**{
        name: lambda old, tile, dS, right=rights[name], power=power: product(old, tile, dS, right, power)
        for name, power in powers.items()
    })  # fmt: skip


def _last(*names: str) -> tuple[Variant, ...]:
    """These gradients keep only the last tile's part: of each head, or of the group's last head."""
    kept = {"dK": ("key_gradient", backward.key_gradient), "dV": ("value_gradient", backward.value_gradient)}
    steps = {kept[name][0]: lambda old, *rest, right=kept[name][1]: right(np.zeros_like(old), *rest) for name in names}
    last_head = {"group_sum": lambda parts, of: parts[-1] if of in names else backward.group_sum(parts, of)}
    return change(**steps), change(**steps, **last_head)


def _square(tile: Tile, left: np.ndarray, right: np.ndarray, filled: bool = False) -> np.ndarray:
    """left @ right without the transpose, as padded tiles: only square tiles let a kernel run.

    ``filled``: rows past N_q hold 1 where a key is visible, which is P there if Q and lse are loaded as 0.
    """
    p = tile.problem
    if p.block_q != p.block_k:
        raise CannotRun
    missing = p.block_q - len(tile.rows)
    left, right = (np.pad(x, ((0, missing), (0, 0))) for x in (left, right))
    if filled and missing:
        rows = tile.rows[-1] + 1 + np.arange(missing)
        left[-missing:] = tile.inside & ((tile.keys[None] <= rows[:, None] + p.offset) | (not p.causal))
    return p.arithmetic.as_operand(left) @ right


UNNORMALISED = {"finish": lambda s: (s.acc, forward.finish(s)[1])}


FAULTS = (
    # ---- D ----------------------------------------------------------------------------------------------
    Fault(
        "d-missing",
        "D is not subtracted from dP",
        "A softmax's gradient needs the row's average of dP: dS = P * (dP - D).",
        (change(score_gradient=lambda P, dO, V, D: P * (dO @ V.T)),),
    ),
    Fault(
        "d-added",
        "D is added to dP instead of subtracted",
        "Over a row dS must sum to 0. With which sign of D does it?",
        (change(score_gradient=lambda P, dO, V, D: P * (dO @ V.T + D[:, None])),),
    ),
    Fault(
        "d-unnormalised",
        "D is computed from the output before it was divided by l",
        "D = rowsum(dO * O) with the O that the forward returned.",
        (Variant(saved=UNNORMALISED),),
    ),
    Fault(
        "d-in-fp16",
        "D is rounded to fp16",
        "dP - D is a difference of two numbers that may be large and alike. In which type should D be kept?",
        (
            Variant(row_dot=lambda dO, O: (dO * O).sum(axis=1).astype(np.float16).astype(dO.dtype)),
            Variant(row_dot=lambda dO, O: (dO * O).astype(np.float16).sum(axis=1).astype(dO.dtype)),
            Variant(row_dot=lambda dO, O: (dO * O).astype(np.float16).sum(axis=1, dtype=dO.dtype)),
        ),
    ),
    Fault(
        "d-one-factor",
        "D lacks one of its two factors",
        "D is a row sum of products. Of which two tensors?",
        (
            Variant(row_dot=lambda dO, O: dO.sum(axis=1)),
            Variant(row_dot=lambda dO, O: O.sum(axis=1)),
            Variant(row_dot=lambda dO, O: (O * O).sum(axis=1)),
            Variant(row_dot=lambda dO, O: (dO * dO).sum(axis=1)),
        ),
    ),
    Fault(
        "d-mean",
        "the products are averaged over d_v, not summed",
        "D is a sum over the columns; no division.",
        (Variant(row_dot=lambda dO, O: (dO * O).mean(axis=1)),),
    ),
    # ---- P and dS ---------------------------------------------------------------------------------------
    Fault(
        "p-unnormalised",
        "the recomputed P does not sum to 1: lse is not subtracted, or only a maximum is",
        "P = exp(S - lse). lse holds the maximum and the logarithm of the sum.",
        (
            _weights(lambda S, lse: np.exp(S)),
            change(probabilities=lambda tile, lse: np.exp(_scores(tile) - _row_maximum(tile)[:, None])),
            change(probabilities=lambda tile, lse: np.exp(_scores(tile) - finite(_scores(tile).max(axis=1))[:, None])),
        ),
    ),
    Fault(
        "lse-base",
        "the scores and lse are in different bases",
        "lse is a natural logarithm. exp2 wants both S and lse times log2(e); exp wants neither.",
        (
            _weights(lambda S, lse: np.exp2(S - lse)),
            _weights(lambda S, lse: np.exp2(S * LOG2E - lse)),
            _weights(lambda S, lse: np.exp(S * LOG2E - lse)),
            _weights(lambda S, lse: np.exp(S - lse * LOG2E)),
            _weights(lambda S, lse: np.exp2(S - lse * LOG2E)),
            _weights(lambda S, lse: np.exp(S - lse / LOG2E)),
            _weights(lambda S, lse: np.exp((S - lse) * LOG2E)),
        ),
    ),
    Fault(
        "ds-without-p",
        "dP - D is not multiplied by P",
        "dS = P * (dP - D), element by element.",
        (
            change(score_gradient=lambda P, dO, V, D: dO @ V.T - D[:, None]),
        ),
    ),
    Fault(
        "d-outside-p",
        "D is subtracted after the product with P",
        "Where are the brackets in P * (dP - D)?",
        (
            change(score_gradient=lambda P, dO, V, D: P * (dO @ V.T) - D[:, None]),
        ),
    ),
    Fault(
        "empty-row-nan",
        "a row that sees no key computes -inf - -inf, which is NaN",
        "lse is -inf there. Subtract 0 instead, or set P to 0 where nothing is visible.",
        (change(probabilities=lambda tile, lse: np.exp(_scores(tile) - lse[:, None])),),
    ),
    Fault(
        "tail-mask-missing",
        "P is not masked for keys past N_k, and becomes inf there",
        "A key that was loaded as 0 has the score 0, and exp(0 - lse) is inf when all real scores are far below 0.",
        (change(probabilities=_tail_seen),),
    ),
    # ---- scale ------------------------------------------------------------------------------------------
    Fault(
        "scale-missing-scores",
        "the recomputed scores are not multiplied by the scale",
        "P must be the forward's P: the same scale in the same place.",
        (
            change(probabilities=lambda tile, lse: np.exp(
                forward.mask(tile.Q_i @ tile.K_j.T, tile) - finite(lse)[:, None]
            )),
        ),
    ),
    Fault(
        "scale-missing-dk",
        "dK is not multiplied by the scale",
        "S = scale * Q K^T: the chain rule brings the scale into dK = scale * dS^T Q.",
        (_scaled(key_gradient=0),),
    ),
    Fault(
        "scale-missing-dq",
        "dQ is not multiplied by the scale",
        "S = scale * Q K^T: the chain rule brings the scale into dQ = scale * dS K.",
        (_scaled(query_gradient=0),),
    ),
    Fault(
        "scale-missing-gradients",
        "neither dQ nor dK is multiplied by the scale",
        "S = scale * Q K^T: what does the chain rule bring into dQ and dK?",
        (_scaled(key_gradient=0, query_gradient=0),),
    ),
    Fault(
        "scale-twice-dk",
        "dK is multiplied by the scale twice",
        "Is dS, or Q, already scaled when you scale dK?",
        (_scaled(key_gradient=2),),
    ),
    Fault(
        "scale-twice-dq",
        "dQ is multiplied by the scale twice",
        "Is dS, or K, already scaled when you scale dQ?",
        (_scaled(query_gradient=2),),
    ),
    Fault(
        "scale-twice-gradients",
        "both dQ and dK are multiplied by the scale twice",
        "Is dS already scaled?",
        (_scaled(key_gradient=2, query_gradient=2),),
    ),
    Fault(
        "scale-argument-ignored",
        "the scale argument is ignored and 1/sqrt(d) is used",
        "The caller may pass another scale than 1/sqrt(d).",
        (Variant(scale=lambda d, scale: 1 / np.sqrt(d)),),
    ),
    # ---- products ---------------------------------------------------------------------------------------
    Fault(
        "dv-not-transposed",
        "dV is P dO without the transpose of P",
        "dV has a row for each key. Which axis of P are the keys?",
        (
            change(value_gradient=lambda dV, tile, P, dO: dV + _square(tile, P, dO)),
            change(value_gradient=lambda dV, tile, P, dO: dV + _square(tile, P, dO, filled=True)),
        ),
    ),
    Fault(
        "dk-not-transposed",
        "dK is dS Q without the transpose of dS",
        "dK has a row for each key. Which axis of dS are the keys?",
        (change(key_gradient=lambda dK, tile, dS: dK + _square(tile, dS, tile.Q_i) * np.float32(tile.problem.scale)),),
    ),
    Fault(
        "ds-is-p",
        "P is used where dS belongs",
        "dV takes P. dK and dQ take dS = P * (dP - D).",
        (change(score_gradient=lambda P, dO, V, D: P), change(score_gradient=lambda P, dO, V, D: dO @ V.T)),
    ),
    Fault(
        "dkdv-last-tile",
        "dK or dV keeps only the last query tile's part",
        "Every query that sees a key adds to its gradient: += in the loop, store after it.",
        _last("dK", "dV") + _last("dK") + _last("dV"),
    ),
    Fault(
        "dq-last-tile",
        "dQ keeps only the last key tile's part",
        "Every key that a query sees adds to dQ: += in the loop, store after it.",
        (change(query_gradient=lambda dQ, tile, dS: backward.query_gradient(np.zeros_like(dQ), tile, dS)),),
    ),
    # ---- causal -----------------------------------------------------------------------------------------
    Fault(
        "causal-ignored",
        "the causal mask is not applied in the backward",
        "The backward recomputes P, and the forward's P was masked.",
        _seen(lambda t: np.ones((len(t.rows), len(t.keys)), bool)),
    ),
    Fault(
        "causal-always",
        "the causal mask is applied although causal is off",
        "Does the backward look at `causal`?",
        _seen(lambda t: t.keys[None] <= t.rows[:, None] + t.problem.offset, always=True),
    ),
    Fault(
        "causal-top-left",
        "the causal mask ignores the offset (top-left alignment, j <= i)",
        "Key j is visible to query i iff j <= i + offset, in the backward too.",
        _seen(lambda t: t.keys[None] <= t.rows[:, None]),
    ),
    Fault(
        "causal-strict",
        "the causal mask uses j < i + offset: a query cannot see its own key",
        "May a token attend to itself?",
        _seen(lambda t: t.keys[None] < t.rows[:, None] + t.problem.offset),
    ),
    Fault(
        "causal-offset-sign",
        "the causal offset has the wrong sign (j <= i - offset)",
        "offset = N_k - N_q is positive in decode, and the one query sees all keys.",
        _seen(lambda t: t.keys[None] <= t.rows[:, None] - t.problem.offset),
    ),
    Fault(
        "causal-transposed",
        "the causal mask has queries and keys exchanged (i <= j + offset)",
        "In a transposed tile the keys are the rows. Which index must be the smaller one?",
        _seen(lambda t: t.rows[:, None] <= t.keys[None] + t.problem.offset)
        + _seen(lambda t: t.rows[:, None] + t.problem.offset <= t.keys[None]),
    ),
    Fault(
        "causal-local-index",
        "the causal mask compares positions inside the tile, not positions in the sequence",
        "Which key is column 0 of tile j? Which query is row 0 of tile i?",
        _seen(lambda t: t.keys[None] - t.keys[0] <= t.rows[:, None] + t.problem.offset)
        + _seen(lambda t: t.keys[None] <= t.rows[:, None] - t.rows[0] + t.problem.offset)
        + _seen(lambda t: t.keys[None] - t.keys[0] <= t.rows[:, None] - t.rows[0] + t.problem.offset),
    ),
    Fault(
        "causal-start-late",
        "the causal loop over query tiles starts too late",
        "Which is the first query that sees the key tile's *first* key, and in which query tile is it, rounded down?",
        (
            _from(lambda p, j: j),
            _from(lambda p, j: j * p.block_k // p.block_q),
            _from(lambda p, j: ((j + 1) * p.block_k - p.offset) // p.block_q),
            _from(lambda p, j: ((j + 1) * p.block_k - 1 - p.offset) // p.block_q),
            _from(lambda p, j: -((p.offset - j * p.block_k) // p.block_q)),
            _from(lambda p, j: max(0, j * p.block_k - p.offset) // p.block_q + 1),
            _from(lambda p, j: (j * p.block_k + p.offset) // p.block_q),
        ),
    ),
    Fault(
        "causal-bound-short",
        "the causal loop over key tiles ends too early",
        "Which is the last key that the query tile's *last* row sees? How many tiles of block_k is that, rounded up?",
        (
            _until(lambda p, i: i + 1),
            _until(lambda p, i: ((i + 1) * p.block_q + p.offset) // p.block_k),
            _until(lambda p, i: -(-((i + 1) * p.block_q) // p.block_k)),
            _until(lambda p, i: -(-(i * p.block_q + p.offset + 1) // p.block_k)),
            _until(lambda p, i: -(-(i * p.block_q + p.offset) // p.block_k)),
            _until(lambda p, i: (i * p.block_q + p.offset) // p.block_k),
        ),
    ),
    # ---- loops and heads --------------------------------------------------------------------------------
    Fault(
        "query-tile-skipped",
        "a query tile is left out of dK and dV",
        "How many tiles of block_q does it take to cover N_q queries, and which is the first?",
        (change(seen_by=_query_tail_lost), change(seen_by=lambda p, j: list(backward.seen_by(p, j))[:-1]),
         change(seen_by=lambda p, j: list(backward.seen_by(p, j))[1:])),
    ),
    Fault(
        "key-tile-skipped",
        "a key tile is left out of dQ",
        "How many tiles of block_k does it take to cover N_k keys, and which is the first?",
        (change(visit=_key_tail_lost), change(visit=lambda p, i: list(forward.visit(p, i))[:-1]),
         change(visit=lambda p, i: list(forward.visit(p, i))[1:])),
    ),
    Fault(
        "gqa-not-summed",
        "dK and dV of a K/V head are not summed over the query heads that read it",
        "A key is read by every query head of its group, and each of them adds to its gradient.",
        (
            change(group_sum=lambda parts, of: parts[-1]),
            change(group_sum=lambda parts, of: parts[0]),
            change(group_sum=lambda parts, of: np.mean(parts, axis=0)),
        ),
    ),
    Fault(
        "gqa-head-map",
        "query heads are paired with the wrong K/V head",
        "With 4 query heads and 2 K/V heads, heads 0 and 1 share K/V head 0: h // (H_q // H_kv).",
        (
            Variant(kv_head=lambda h, H_q, H_kv: h),
            Variant(kv_head=lambda h, H_q, H_kv: h % H_kv),
            Variant(kv_head=lambda h, H_q, H_kv: min(h // H_kv, H_kv - 1)),
            Variant(kv_head=lambda h, H_q, H_kv: 0),
            Variant(kv_head=lambda h, H_q, H_kv: h % (H_q // H_kv) % H_kv),
        ),
    ),
    # ---- memory -----------------------------------------------------------------------------------------
    Fault(
        "do-contiguous",
        "dO is read as if it were contiguous, or with another tensor's strides",
        "The gradient that arrives may be a view with any strides, 0 among them. Pass dO's own, or copy it first.",
        tuple(
            Variant(borrowed=("do", owner, (0, 1, 2)), kernels=kernels)
            for owner in ("contiguous", "o", "q", "v")
            for kernels in (EVERYWHERE, ("D",), ("dkdv",), ("dq",), ("dkdv", "dq"))
        ),
    ),
    Fault(
        "borrowed-stride",
        "one tensor is read with another tensor's strides",
        "q, k, v, o may lie differently in memory. Does each pointer use its own tensor's strides?",
        tuple(
            Variant(borrowed=(tensor, owner, axes))
            for tensor, owner in (("v", "k"), ("k", "v"), ("k", "q"), ("v", "q"), ("q", "k"), ("o", "do"), ("q", "do"))
            for axes in ((0, 1, 2), (2,), (1,))
        ),
    ),
    Fault(
        "dq-race",
        "several programs add to the same rows of dQ by load, add and store. On a GPU two of them may read the same "
        "old value, and one update is lost; the interpreter runs programs one by one, so the numbers look right here",
        "Which program owns a row of dQ? Either one that walks over all its keys, or several that use tl.atomic_add.",
    ),
    Fault(
        "preprocess-tile",
        "rows of D were never computed: the preprocess kernel counts its tiles with another size than it uses",
        "The D kernel and the kernels that read D may have different tiles. Which one is in each grid?",
    ),
    *(FORWARD[name] for name in (
        "tail-load-unmasked", "tail-store-unmasked", "other-missing", "query-tail-lost", "int32-overflow", "race",
    )),
    Fault(
        "key-tail-lost",
        "the last, partial key tile of dK and dV is never computed",
        "How many programs does it take to cover N_k keys? Look at the grid.",
    ),
)  # fmt: skip


def bank(*names: str) -> tuple[Fault, ...]:
    """The named faults, in the bank's order; KeyError for an unknown name."""
    return chosen(FAULTS, names)
