"""Online softmax: a row is read block by block, carrying a maximum, a sum and an unnormalised output.

Sources: Milakov and Gimelshein 2018, Algorithm 3 (m and l) and section 3.1 (their merge is associative);
Rabe and Staats 2021 (the weighted sum of values carried beside them).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class State:
    """What a row carries from block to block: m ``(rows,)``, l ``(rows,)``, acc ``(rows, d_v)``.

    A single row's state may leave out ``rows``: m ``()``, l ``()``, acc ``(d_v,)``.
    """

    m: np.ndarray
    l: np.ndarray
    acc: np.ndarray


def init(rows: int | tuple[int, ...], d_v: int, dtype: np.dtype) -> State:
    """The empty state: nothing seen, so the maximum is -inf. It is the identity of :func:`merge`."""
    rows = (rows,) if isinstance(rows, int) else tuple(rows)
    return State(np.full(rows, -np.inf, dtype), np.zeros(rows, dtype), np.zeros((*rows, d_v), dtype))


def finite(m: np.ndarray) -> np.ndarray:
    """m with -inf (nothing seen yet) replaced by 0, so that -inf - -inf never happens."""
    return np.where(np.isneginf(m), m.dtype.type(0), m)


def shrink(m_old: np.ndarray, m_new: np.ndarray) -> np.ndarray:
    """alpha = exp(m_old - m_new): what sums taken against m_old are worth against m_new; 0 if they are empty."""
    return np.exp(m_old - finite(m_new))


def weights(S: np.ndarray, m_new: np.ndarray) -> np.ndarray:
    return np.exp(S - finite(m_new)[..., None])


def rescale(state: State, m_new: np.ndarray) -> State:
    alpha = shrink(state.m, m_new)
    return State(m_new, alpha * state.l, alpha[..., None] * state.acc)


def merge(a: State, b: State) -> State:
    """The state of a row that has seen the keys of both. Associative; an empty state changes nothing."""
    m = np.maximum(a.m, b.m)
    a, b = rescale(a, m), rescale(b, m)
    return State(m, a.l + b.l, a.acc + b.acc)


def finish(state: State) -> tuple[np.ndarray, np.ndarray]:
    """The one division: output ``acc / l`` and lse ``m + ln(l)``; output 0 and lse -inf where no key was seen."""
    empty = state.l == 0
    O = state.acc / np.where(empty, state.l.dtype.type(1), state.l)[..., None]
    with np.errstate(divide="ignore"):
        return O, np.where(empty, -np.inf, state.m + np.log(state.l))


@dataclass
class Block:
    """One block in a trace: its scores, the factor alpha that its arrival put on the old sums, the state after it."""

    start: int
    scores: np.ndarray
    alpha: np.ndarray
    m: np.ndarray
    l: np.ndarray
    acc: np.ndarray


@dataclass
class Trace:
    """What a run did, block by block; pictures are drawn from it."""

    blocks: list[Block] = field(default_factory=list)


def fold(scores, values=None, block: int = 2, trace: Trace | None = None) -> State:
    """The state after all blocks of ``scores`` ``(N,)`` or ``(rows, N)``, float64.

    ``values`` is ``(N, d_v)``, or None for m and l alone (acc is then ``(rows, 0)``). Partial rows, folded
    apart, are joined with :func:`merge`. Raises ValueError when the shapes or the block size cannot be.
    """
    scores, values = _checked(scores, values, block)
    state = init(scores.shape[:-1], values.shape[1], scores.dtype)
    for start in range(0, scores.shape[-1], block):
        S = scores[..., start : start + block]
        m_new = np.maximum(state.m, S.max(axis=-1))
        alpha = shrink(state.m, m_new)
        P = weights(S, m_new)
        old = rescale(state, m_new)
        state = State(m_new, old.l + P.sum(axis=-1), old.acc + P @ values[start : start + block])
        if trace is not None:
            trace.blocks.append(Block(start, S, alpha, state.m, state.l, state.acc))
    return state


def online_softmax(scores, values=None, block: int = 2, trace: Trace | None = None) -> np.ndarray:
    """Softmax of one row ``(N,)`` or of rows ``(rows, N)`` in blocks of ``block`` scores, float64.

    With ``values`` ``(N, d_v)`` or ``(N,)``: the weighted sum ``softmax(scores) @ values`` in one pass. Without:
    the probabilities, shaped like ``scores``, by a second pass. -inf hides a score; a row with all hidden gives 0.
    Raises ValueError when the shapes or the block size cannot be.
    """
    if values is None:
        state = fold(scores, None, block, trace)
        S = np.asarray(scores, np.float64)
        return weights(S, state.m) / np.where(state.l == 0, 1.0, state.l)[..., None]
    values = np.asarray(values, np.float64)
    O, _ = finish(fold(scores, values[:, None] if values.ndim == 1 else values, block, trace))
    return O[..., 0] if values.ndim == 1 else O


def _checked(scores, values, block: int) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(scores, np.float64)
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores must be one row (N,) or rows (rows, N), but have shape {scores.shape}")
    if block < 1:
        raise ValueError(f"block must be at least 1, but is {block}")
    N = scores.shape[-1]
    values = np.zeros((N, 0)) if values is None else np.asarray(values, np.float64)
    if values.ndim != 2 or len(values) != N:
        raise ValueError(f"values must have a row for each of the {N} scores, but have shape {values.shape}")
    return scores, values
