"""Attention forward: dense, and tiled in the loop orders of FlashAttention 1 and 2, written as named steps.

Sources: Dao et al. 2022 (FlashAttention), Algorithm 1; Dao 2023 (FlashAttention-2), Algorithm 1. Both print
the online softmax of Milakov and Gimelshein 2018. FlashAttention-2 prints ``diag(exp(m_old - m))^-1`` in
line 10; the inverse is an erratum and is not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reference.online_softmax import State, finish, finite, init, rescale, weights
from reference.shapes import FLOAT64, Arithmetic, check_head, kv_head, visible_keys


@dataclass(frozen=True)
class Problem:
    """One head's attention, with the tile sizes it is cut into.

    Q ``(N_q, d)``, K ``(N_k, d)``, V ``(N_k, d_v)``; ``mask`` is ``(N_q, N_k)`` boolean or None.
    """

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    scale: float | None = None
    causal: bool = False
    offset: int = 0
    mask: np.ndarray | None = None
    block_q: int = 16
    block_k: int = 16
    arithmetic: Arithmetic = FLOAT64

    def __post_init__(self):
        check_head(self.Q, self.K, self.V, self.mask, self.block_q, self.block_k)
        if self.scale is None:
            object.__setattr__(self, "scale", 1.0 / np.sqrt(self.Q.shape[1]))

    @property
    def visible(self) -> np.ndarray:
        return visible_keys(len(self.Q), len(self.K), self.causal, self.offset, self.mask)

    @property
    def query_tiles(self) -> int:
        return -(-len(self.Q) // self.block_q)

    @property
    def key_tiles(self) -> int:
        return -(-len(self.K) // self.block_k)

    def rows(self, i: int) -> np.ndarray:
        """Indices of query tile ``i``'s rows; the last tile has fewer."""
        return np.arange(i * self.block_q, min((i + 1) * self.block_q, len(self.Q)))


@dataclass
class Tile:
    """One score tile: query rows, key columns (a whole ``block_k``, so that the tail's padding shows), operands."""

    problem: Problem
    i: int
    j: int
    rows: np.ndarray
    keys: np.ndarray
    Q_i: np.ndarray
    K_j: np.ndarray
    V_j: np.ndarray
    S: np.ndarray | None = None  # scaled scores before the mask

    @property
    def inside(self) -> np.ndarray:
        """Which columns are real keys, not the zero padding of the last tile."""
        return self.keys < len(self.problem.K)

    @property
    def visible(self) -> np.ndarray:
        p = self.problem
        seen = np.broadcast_to(self.inside, (len(self.rows), len(self.keys))).copy()
        if p.causal:
            seen &= self.keys[None, :] <= self.rows[:, None] + p.offset
        if p.mask is not None:
            padded = np.zeros((len(p.Q), p.key_tiles * p.block_k), bool)
            padded[:, : len(p.K)] = p.mask
            seen &= padded[self.rows][:, self.keys]
        return seen


def cut(p: Problem, i: int, j: int) -> Tile:
    """Score tile (i, j) with its operands in the accumulation type."""
    rows, keys = p.rows(i), np.arange(j * p.block_k, (j + 1) * p.block_k)
    return Tile(p, i, j, rows, keys, _take(p.Q, rows, p), _take(p.K, keys, p), _take(p.V, keys, p))


# ---- the named steps of the right algorithm; a fault replaces one of them. Those of any online softmax
# ---- (init, weights, rescale, finish) come from reference.online_softmax ---------------------------------


def visit(problem: Problem, i: int) -> Sequence[int]:
    """Key tiles that query tile ``i`` visits: all, or up to the last key that its last row may see."""
    if not problem.causal:
        return range(problem.key_tiles)
    last_row = (i + 1) * problem.block_q - 1
    keys = min(len(problem.K), max(0, last_row + problem.offset + 1))
    return range(-(-keys // problem.block_k))


def score(tile: Tile) -> np.ndarray:
    return tile.Q_i @ tile.K_j.T * tile.Q_i.dtype.type(tile.problem.scale)


def mask(S: np.ndarray, tile: Tile) -> np.ndarray:
    return np.where(tile.visible, S, S.dtype.type(-np.inf))


def new_max(m: np.ndarray, S: np.ndarray, tile: Tile) -> np.ndarray:
    return np.maximum(m, S.max(axis=1))


def accumulate(state: State, P: np.ndarray, tile: Tile) -> State:
    PV = tile.problem.arithmetic.as_operand(P) @ tile.V_j
    return State(state.m, state.l + P.sum(axis=1), state.acc + PV)


@dataclass(frozen=True)
class Steps:
    """The forward as replaceable steps; ``replace(STEPS, rescale=...)`` is a named wrong oracle."""

    init: Callable = init
    visit: Callable = visit
    score: Callable = score
    mask: Callable = mask
    new_max: Callable = new_max
    weights: Callable = weights
    rescale: Callable = rescale
    accumulate: Callable = accumulate
    finish: Callable = finish


STEPS = Steps()


@dataclass
class Event:
    """One visited score tile in a trace, with the state of its rows after it."""

    i: int
    j: int
    rows: np.ndarray
    keys: np.ndarray
    visible: np.ndarray
    S: np.ndarray
    P: np.ndarray
    m: np.ndarray
    l: np.ndarray
    acc: np.ndarray


@dataclass
class Trace:
    """What a tiled run did, in order; pictures are drawn from it."""

    order: str = ""
    events: list[Event] = field(default_factory=list)


def dense(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Softmax attention with the whole score matrix. Returns O ``(N_q, d_v)`` and lse ``(N_q,)``, float64."""
    Q, K, V = (np.asarray(x, np.float64) for x in (problem.Q, problem.K, problem.V))
    S = np.where(problem.visible, Q @ K.T * problem.scale, -np.inf)
    m = finite(S.max(axis=1, initial=-np.inf))
    P = np.exp(S - m[:, None])
    l = P.sum(axis=1)
    with np.errstate(divide="ignore"):
        return P @ V / np.where(l == 0, 1, l)[:, None], m + np.log(l)


def tiled(problem: Problem, steps: Steps = STEPS, trace: Trace | None = None) -> tuple[np.ndarray, np.ndarray]:
    """FlashAttention-2's order: query tiles outside, key tiles inside, one division at the end.

    Returns O ``(N_q, d_v)`` and lse ``(N_q,)`` in the accumulation type of ``problem.arithmetic``.
    """
    p = problem
    O, lse = _outputs(p)
    with np.errstate(all="ignore"):  # faulty steps overflow on purpose
        for i in range(p.query_tiles):
            rows = p.rows(i)
            state = steps.init(len(rows), p.V.shape[1], p.arithmetic.accumulator)
            for j in steps.visit(p, i):
                state = _step(p, steps, state, i, j, trace)
            O[rows], lse[rows] = steps.finish(state)
    return O, lse


def tiled_fa1(problem: Problem, steps: Steps = STEPS, trace: Trace | None = None) -> tuple[np.ndarray, np.ndarray]:
    """FlashAttention-1's order: key tiles outside, query tiles inside; O, l and m make a round trip per visit.

    O is kept normalised between visits, as Algorithm 1 stores it; same shapes and returns as :func:`tiled`.
    """
    p = problem
    O, lse = _outputs(p)
    d_v, dtype = p.V.shape[1], p.arithmetic.accumulator
    states = [steps.init(len(p.rows(i)), d_v, dtype) for i in range(p.query_tiles)]
    visits = [set(steps.visit(p, i)) for i in range(p.query_tiles)]
    with np.errstate(all="ignore"):
        for j in range(p.key_tiles):
            for i, state in enumerate(states):
                if j not in visits[i]:
                    continue
                unnormalised = replace(state, acc=state.acc * state.l[:, None])
                state = _step(p, steps, unnormalised, i, j, trace)
                l = np.where(state.l == 0, dtype.type(1), state.l)
                states[i] = replace(state, acc=state.acc / l[:, None])
        for i, state in enumerate(states):
            rows = p.rows(i)
            O[rows], lse[rows] = steps.finish(replace(state, acc=state.acc * state.l[:, None]))
    return O, lse


def multi_head(Q, K, V, run=dense, kv_head=kv_head, **options) -> tuple[np.ndarray, np.ndarray]:
    """Run a one-head forward over ``(B, H_q, N_q, d)`` and ``(B, H_kv, N_k, d)``: GQA when H_kv < H_q.

    ``options`` are those of :class:`Problem`; ``kv_head(h, H_q, H_kv)`` gives the K/V head of query head h.
    """
    batch, H_q, N_q, _ = Q.shape
    H_kv, d_v = V.shape[1], V.shape[3]
    outputs = [[None] * H_q for _ in range(batch)]
    for b in range(batch):
        for h in range(H_q):
            g = kv_head(h, H_q, H_kv)
            outputs[b][h] = run(Problem(Q[b, h], K[b, g], V[b, g], **options))
    O = np.array([[o for o, _ in row] for row in outputs]).reshape(batch, H_q, N_q, d_v)
    return O, np.array([[lse for _, lse in row] for row in outputs]).reshape(batch, H_q, N_q)


def _outputs(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    dtype = p.arithmetic.accumulator
    return np.zeros((len(p.Q), p.V.shape[1]), dtype), np.full(len(p.Q), -np.inf, dtype)


def _step(p: Problem, steps: Steps, state: State, i: int, j: int, trace: Trace | None) -> State:
    tile = cut(p, i, j)
    tile.S = steps.score(tile)
    S = steps.mask(tile.S, tile)
    m_new = steps.new_max(state.m, S, tile)
    P = steps.weights(S, m_new)
    state = steps.accumulate(steps.rescale(state, m_new), P, tile)
    if trace is not None:
        trace.events.append(Event(i, j, tile.rows, tile.keys, tile.visible, S, P, state.m, state.l, state.acc))
    return state


def _take(matrix: np.ndarray, rows: np.ndarray, p: Problem) -> np.ndarray:
    """Rows of a matrix in the accumulation type, zeros where a row does not exist."""
    out = np.zeros((len(rows), matrix.shape[1]), p.arithmetic.accumulator)
    real = rows < len(matrix)
    out[real] = matrix[rows[real]]
    return out
