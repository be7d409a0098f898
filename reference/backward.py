"""Attention backward: dense, tiled with one loop owner per gradient, tiled in one kernel, and central differences.

Sources: Dao et al. 2022 (FlashAttention), appendix B.2 and Algorithm 4; Dao 2023 (FlashAttention-2), Algorithm 2.
With S = scale Q K^T, P = exp(S - L), O = P V and an incoming gradient dO:
    dV = P^T dO        dP = dO V^T        D = rowsum(dO * O) = rowsum(P * dP)
    dS = P * (dP - D)  dQ = scale dS K    dK = scale dS^T Q
P is not stored: it is recomputed from S and from L, the forward's lse. A query that sees no key has gradient 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reference import forward
from reference.forward import Problem, Tile, cut
from reference.online_softmax import finite
from reference.shapes import kv_head

Gradients = tuple[np.ndarray, np.ndarray, np.ndarray]  # dQ (N_q, d), dK (N_k, d), dV (N_k, d_v)
Saved = tuple[np.ndarray, np.ndarray]  # what a forward leaves for the backward: O (N_q, d_v), lse (N_q,)


# ---- the named steps of the right algorithm; a fault replaces one of them ---------------------------------


def row_dot(dO: np.ndarray, O: np.ndarray) -> np.ndarray:
    """D ``(rows,)``: the row sums of dO * O, one scalar a query; the kernels' preprocess step."""
    return (dO * O).sum(axis=1)


def seen_by(problem: Problem, j: int) -> Sequence[int]:
    """Query tiles that visit key tile ``j``: all, or from the first row that may see its first key."""
    first_row = max(0, j * problem.block_k - problem.offset) if problem.causal else 0
    return range(first_row // problem.block_q, problem.query_tiles)


def probabilities(tile: Tile, lse: np.ndarray) -> np.ndarray:
    """P ``(rows, block_k)`` of a tile, recomputed: exp(S - lse), hidden keys 0."""
    S = forward.mask(forward.score(tile), tile)
    return np.exp(S - finite(lse)[:, None])


def score_gradient(P: np.ndarray, dO_i: np.ndarray, V_j: np.ndarray, D: np.ndarray) -> np.ndarray:
    """dS of a tile, for the scaled scores: P * (dP - D). Over a whole row it sums to 0."""
    return P * (dO_i @ V_j.T - D[:, None])


def value_gradient(dV_j: np.ndarray, tile: Tile, P: np.ndarray, dO_i: np.ndarray) -> np.ndarray:
    """dV_j ``(block_k, d_v)`` after query tile i has added P^T dO_i."""
    return dV_j + tile.problem.arithmetic.as_operand(P).T @ dO_i


def key_gradient(dK_j: np.ndarray, tile: Tile, dS: np.ndarray) -> np.ndarray:
    """dK_j ``(block_k, d)`` after query tile i has added scale dS^T Q_i."""
    return dK_j + tile.problem.arithmetic.as_operand(dS).T @ tile.Q_i * dS.dtype.type(tile.problem.scale)


def query_gradient(dQ_i: np.ndarray, tile: Tile, dS: np.ndarray) -> np.ndarray:
    """dQ_i ``(rows, d)`` after key tile j has added scale dS K_j."""
    return dQ_i + tile.problem.arithmetic.as_operand(dS) @ tile.K_j * dS.dtype.type(tile.problem.scale)


def group_sum(parts: Sequence[np.ndarray], of: str) -> np.ndarray:
    """The gradient ``of`` ("dK" or "dV") of a K/V head from those of the query heads that read it."""
    return np.sum(parts, axis=0)


@dataclass(frozen=True)
class Steps:
    """The backward as replaceable steps; ``replace(STEPS, row_dot=...)`` is a named wrong oracle.

    ``visit`` are the key tiles of a query tile (dQ's loop), ``seen_by`` the query tiles of a key tile.
    """

    row_dot: Callable = row_dot
    visit: Callable = forward.visit
    seen_by: Callable = seen_by
    probabilities: Callable = probabilities
    score_gradient: Callable = score_gradient
    value_gradient: Callable = value_gradient
    key_gradient: Callable = key_gradient
    query_gradient: Callable = query_gradient
    group_sum: Callable = group_sum


STEPS = Steps()


def dense(problem: Problem, dO: np.ndarray, saved: Saved | None = None) -> Gradients:
    """Gradients of ``sum(dO * O)`` with the whole P and dS in memory, float64; dO is ``(N_q, d_v)``."""
    p = problem
    Q, K, V, dO = (np.asarray(x, np.float64) for x in (p.Q, p.K, p.V, dO))
    O, lse = forward.dense(p) if saved is None else saved
    S = np.where(p.visible, Q @ K.T * p.scale, -np.inf)
    P = np.exp(S - finite(lse)[:, None])
    dS = score_gradient(P, dO, V, row_dot(dO, O))
    return dS @ K * p.scale, dS.T @ Q * p.scale, P.T @ dO


def tiled(problem: Problem, dO: np.ndarray, saved: Saved | None = None, steps: Steps = STEPS) -> Gradients:
    """Two kernels, no atomics: a loop over key tiles owns dK and dV, a second one over query tiles owns dQ.

    ``saved`` is the forward's (O, lse), by default :func:`reference.forward.tiled`'s; the gradients are in the
    accumulation type of ``problem.arithmetic``. S and dP are computed twice: 7 matrix products, not 5.
    """
    p, (dO, lse, D) = problem, _prepared(problem, dO, saved, steps)
    dQ, dK, dV = _zeros(p)
    with np.errstate(all="ignore"):  # faulty steps overflow on purpose
        for j in range(p.key_tiles):
            dK_j, dV_j = _zero_tile(p)
            for i in steps.seen_by(p, j):
                tile, P, dS = _recomputed(p, steps, i, j, dO, lse, D)
                dV_j = steps.value_gradient(dV_j, tile, P, dO[tile.rows])
                dK_j = steps.key_gradient(dK_j, tile, dS)
            _store_keys(dK, dV, j, dK_j, dV_j, p)
        for i in range(p.query_tiles):
            for j in steps.visit(p, i):
                tile, _, dS = _recomputed(p, steps, i, j, dO, lse, D)
                dQ[tile.rows] = steps.query_gradient(dQ[tile.rows], tile, dS)
    return dQ, dK, dV


def one_kernel(problem: Problem, dO: np.ndarray, saved: Saved | None = None, steps: Steps = STEPS) -> Gradients:
    """One kernel, the loop over key tiles outside: S and dP are computed once (5 matrix products).

    Every key tile adds to the same rows of dQ; here the loop is serial, in a kernel the addition must be atomic.
    Arguments and result as for :func:`tiled`.
    """
    p, (dO, lse, D) = problem, _prepared(problem, dO, saved, steps)
    dQ, dK, dV = _zeros(p)
    with np.errstate(all="ignore"):
        for j in range(p.key_tiles):
            dK_j, dV_j = _zero_tile(p)
            for i in steps.seen_by(p, j):
                tile, P, dS = _recomputed(p, steps, i, j, dO, lse, D)
                dV_j = steps.value_gradient(dV_j, tile, P, dO[tile.rows])
                dK_j = steps.key_gradient(dK_j, tile, dS)
                dQ[tile.rows] = steps.query_gradient(dQ[tile.rows], tile, dS)
            _store_keys(dK, dV, j, dK_j, dV_j, p)
    return dQ, dK, dV


def multi_head(Q, K, V, dO, run=dense, saved=None, kv_head=kv_head, group_sum=group_sum, **options) -> Gradients:
    """A one-head backward over ``(B, H_q, N_q, d)``, ``(B, H_kv, N_k, d)`` and dO ``(B, H_q, N_q, d_v)``.

    In GQA the query heads of a group read one K/V head, so their dK and dV are summed. ``options`` are those of
    :class:`reference.forward.Problem`; ``saved`` is the forward's (O, lse) of all heads, None to compute them;
    ``kv_head(h, H_q, H_kv)`` gives the K/V head of query head h. Returns dQ, dK, dV, shaped like Q, K, V.
    """
    (batch, H_q), H_kv = Q.shape[:2], K.shape[1]
    dQ, dK, dV = (np.zeros(x.shape) for x in (Q, K, V))
    for b in range(batch):
        parts = [[] for _ in range(H_kv)]
        for h in range(H_q):
            g = kv_head(h, H_q, H_kv)
            left = None if saved is None else (saved[0][b, h], saved[1][b, h])
            dQ[b, h], *of_keys = run(Problem(Q[b, h], K[b, g], V[b, g], **options), dO[b, h], left)
            parts[g].append(of_keys)
        for g, heads in enumerate(parts):
            if heads:
                of_K, of_V = zip(*heads, strict=True)
                dK[b, g], dV[b, g] = group_sum(of_K, "dK"), group_sum(of_V, "dV")
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


def _prepared(p: Problem, dO, saved: Saved | None, steps: Steps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dO, lse and D in the accumulation type."""
    expected = (len(p.Q), p.V.shape[1])
    if np.shape(dO) != expected:
        raise ValueError(f"dO must have O's shape {expected}, but has shape {np.shape(dO)}")
    dtype = p.arithmetic.accumulator
    O, lse = (np.asarray(x, dtype) for x in (forward.tiled(p) if saved is None else saved))
    dO = np.asarray(dO, dtype)
    return dO, lse, steps.row_dot(dO, O)


def _zeros(p: Problem) -> Gradients:
    return tuple(np.zeros(x.shape, p.arithmetic.accumulator) for x in (p.Q, p.K, p.V))


def _zero_tile(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.zeros((p.block_k, x.shape[1]), p.arithmetic.accumulator) for x in (p.K, p.V))


def _recomputed(p: Problem, steps: Steps, i: int, j: int, dO, lse, D) -> tuple[Tile, np.ndarray, np.ndarray]:
    tile = cut(p, i, j)
    P = steps.probabilities(tile, lse[tile.rows])
    return tile, P, steps.score_gradient(P, dO[tile.rows], tile.V_j, D[tile.rows])


def _store_keys(dK, dV, j: int, dK_j: np.ndarray, dV_j: np.ndarray, p: Problem) -> None:
    """Write a key tile's rows that exist; the padding of the last tile is dropped."""
    start, stop = j * p.block_k, min((j + 1) * p.block_k, len(p.K))
    dK[start:stop], dV[start:stop] = dK_j[: stop - start], dV_j[: stop - start]
