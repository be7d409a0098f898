"""Attention backward: dense, tiled with one loop owner per gradient, tiled in one kernel, and central differences.

Sources: Dao et al. 2022 (FlashAttention), appendix B.2 and Algorithm 4; Dao 2023 (FlashAttention-2), Algorithm 2.
With S = scale Q K^T, P = exp(S - L), O = P V and an incoming gradient dO:
    dV = P^T dO        dP = dO V^T        D = rowsum(dO * O) = rowsum(P * dP)
    dS = P * (dP - D)  dQ = scale dS K    dK = scale dS^T Q
P is not stored: it is recomputed from S and from L, the forward's lse. A query that sees no key has gradient 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reference import forward
from reference.forward import Problem, Tile, cut
from reference.online_softmax import finite
from reference.shapes import kv_head

Gradients = tuple[np.ndarray, np.ndarray, np.ndarray]  # dQ (N_q, d), dK (N_k, d), dV (N_k, d_v)
Saved = tuple[np.ndarray, np.ndarray]  # what a forward leaves for the backward: O (N_q, d_v), lse (N_q,)


def row_dot(dO: np.ndarray, O: np.ndarray) -> np.ndarray:
    """D ``(rows,)``: the row sums of dO * O, one scalar a query; the kernels' preprocess step."""
    return (dO * O).sum(axis=1)


def probabilities(tile: Tile, lse: np.ndarray) -> np.ndarray:
    """P ``(rows, block_k)`` of a tile, recomputed: exp(S - lse), hidden keys 0."""
    S = forward.mask(forward.score(tile), tile)
    return np.exp(S - finite(lse)[:, None])


def score_gradient(P: np.ndarray, dO_i: np.ndarray, V_j: np.ndarray, D: np.ndarray) -> np.ndarray:
    """dS of a tile, for the scaled scores: P * (dP - D). Over a whole row it sums to 0."""
    return P * (dO_i @ V_j.T - D[:, None])


def seen_by(problem: Problem, j: int) -> Sequence[int]:
    """Query tiles that visit key tile ``j``: all, or from the first row that may see its first key."""
    first_row = max(0, j * problem.block_k - problem.offset) if problem.causal else 0
    return range(first_row // problem.block_q, problem.query_tiles)


def dense(problem: Problem, dO: np.ndarray) -> Gradients:
    """Gradients of ``sum(dO * O)`` with the whole P and dS in memory, float64; dO is ``(N_q, d_v)``."""
    p = problem
    Q, K, V, dO = (np.asarray(x, np.float64) for x in (p.Q, p.K, p.V, dO))
    O, lse = forward.dense(p)
    S = np.where(p.visible, Q @ K.T * p.scale, -np.inf)
    P = np.exp(S - finite(lse)[:, None])
    dS = score_gradient(P, dO, V, row_dot(dO, O))
    return dS @ K * p.scale, dS.T @ Q * p.scale, P.T @ dO


def tiled(problem: Problem, dO: np.ndarray, saved: Saved | None = None) -> Gradients:
    """Two kernels, no atomics: a loop over key tiles owns dK and dV, a second one over query tiles owns dQ.

    ``saved`` is the forward's (O, lse), by default :func:`reference.forward.tiled`'s; the gradients are in the
    accumulation type of ``problem.arithmetic``. S and dP are computed twice: 7 matrix products, not 5.
    """
    p, (dO, lse, D) = problem, _prepared(problem, dO, saved)
    dQ, dK, dV = _zeros(p)
    for j in range(p.key_tiles):
        for i in seen_by(p, j):
            tile, P, dS = _recomputed(p, i, j, dO, lse, D)
            _add_key_gradients(dK, dV, tile, P, dS, dO)
    for i in range(p.query_tiles):
        for j in forward.visit(p, i):
            tile, _, dS = _recomputed(p, i, j, dO, lse, D)
            _add_query_gradient(dQ, tile, dS)
    return dQ, dK, dV


def one_kernel(problem: Problem, dO: np.ndarray, saved: Saved | None = None) -> Gradients:
    """One kernel, the loop over key tiles outside: S and dP are computed once (5 matrix products).

    Every key tile adds to the same rows of dQ; here the loop is serial, in a kernel the addition must be atomic.
    Arguments and result as for :func:`tiled`.
    """
    p, (dO, lse, D) = problem, _prepared(problem, dO, saved)
    dQ, dK, dV = _zeros(p)
    for j in range(p.key_tiles):
        for i in seen_by(p, j):
            tile, P, dS = _recomputed(p, i, j, dO, lse, D)
            _add_key_gradients(dK, dV, tile, P, dS, dO)
            _add_query_gradient(dQ, tile, dS)
    return dQ, dK, dV


def multi_head(Q, K, V, dO, run: Callable = dense, **options) -> Gradients:
    """A one-head backward over ``(B, H_q, N_q, d)``, ``(B, H_kv, N_k, d)`` and dO ``(B, H_q, N_q, d_v)``.

    In GQA the query heads of a group read one K/V head, so their dK and dV are summed. ``options`` are those
    of :class:`reference.forward.Problem`. Returns dQ, dK, dV, shaped like Q, K, V.
    """
    batch, H_q = Q.shape[:2]
    dQ, dK, dV = (np.zeros(x.shape) for x in (Q, K, V))
    for b in range(batch):
        for h in range(H_q):
            g = kv_head(h, H_q, K.shape[1])
            dQ[b, h], dK_h, dV_h = run(Problem(Q[b, h], K[b, g], V[b, g], **options), dO[b, h])
            dK[b, g] += dK_h
            dV[b, g] += dV_h
    return dQ, dK, dV


def central_differences(loss: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Gradient of ``loss`` at ``x``, element by element: (loss(x + step) - loss(x - step)) / (2 step).

    In float64 its error is about step^2 from the cut-off series and 1e-16 |loss| / step from rounding.
    """
    x = np.array(x, np.float64)
    gradient = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        here = x[at]
        x[at] = here + step
        above = loss(x)
        x[at] = here - step
        below = loss(x)
        x[at] = here
        gradient[at] = (above - below) / (2 * step)
    return gradient


def _prepared(p: Problem, dO: np.ndarray, saved: Saved | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dO, lse and D in the accumulation type."""
    expected = (len(p.Q), p.V.shape[1])
    if np.shape(dO) != expected:
        raise ValueError(f"dO must have O's shape {expected}, but has shape {np.shape(dO)}")
    dtype = p.arithmetic.accumulator
    O, lse = (np.asarray(x, dtype) for x in (forward.tiled(p) if saved is None else saved))
    dO = np.asarray(dO, dtype)
    return dO, lse, row_dot(dO, O)


def _zeros(p: Problem) -> Gradients:
    return tuple(np.zeros(x.shape, p.arithmetic.accumulator) for x in (p.Q, p.K, p.V))


def _recomputed(p: Problem, i: int, j: int, dO, lse, D) -> tuple[Tile, np.ndarray, np.ndarray]:
    tile = cut(p, i, j)
    P = probabilities(tile, lse[tile.rows])
    return tile, P, score_gradient(P, dO[tile.rows], tile.V_j, D[tile.rows])


def _add_key_gradients(dK, dV, tile: Tile, P: np.ndarray, dS: np.ndarray, dO: np.ndarray) -> None:
    a, real = tile.problem.arithmetic, tile.inside
    dV[tile.keys[real]] += (a.as_operand(P).T @ dO[tile.rows])[real]
    dK[tile.keys[real]] += (a.as_operand(dS).T @ tile.Q_i * dS.dtype.type(tile.problem.scale))[real]


def _add_query_gradient(dQ, tile: Tile, dS: np.ndarray) -> None:
    a = tile.problem.arithmetic
    dQ[tile.rows] += a.as_operand(dS) @ tile.K_j * dS.dtype.type(tile.problem.scale)
