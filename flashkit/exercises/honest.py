"""Honest runs in the kernel's own precision: their distance from float64 sets the tolerance of a check.

The rule is the official FlashAttention tests': an output passes when its error is at most twice the error of
plain attention computed in the same precision. The honest runs are PyTorch's order, a fused kernel's, in half
precision some that scale Q first, and in fp32, where the order of the sums is all that sets the error, some in which
the scores are off by what that order can cost: one run may be much luckier than another right kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from flashkit.exercises.inputs import NUMPY_DTYPES
from flashkit.runtime.placement import TORCH_DTYPES
from reference import backward
from reference.forward import STEPS, Problem, State, Steps, finite, multi_head, tiled
from reference.shapes import Arithmetic, visible_keys

LOG2E = np.float32(np.log2(np.e))
UNIT = np.float32(2**-24)  # an fp32 rounding is off by up to this share
UNLUCKY = 8  # runs with bad roundings: that the two keys which decide a row err alike in all of them is rare

EXP2_STEPS = replace(
    STEPS,
    score=lambda tile: tile.Q_i @ tile.K_j.T * (np.float32(tile.problem.scale) * LOG2E),
    weights=lambda S, m: np.exp2(S - finite(m)[:, None]),
    rescale=lambda s, m: State(m, np.exp2(s.m - finite(m)) * s.l, np.exp2(s.m - finite(m))[:, None] * s.acc),
    finish=lambda s: (
        s.acc / np.where(s.l == 0, np.float32(1), s.l)[:, None],
        np.where(s.l == 0, -np.inf, (s.m + np.log2(s.l)) / LOG2E),
    ),
)


def honest_forward(q, k, v, options, dtype: str, arithmetic: Arithmetic) -> list[dict[str, np.ndarray]]:
    """Outputs ``o`` and ``lse`` of plain PyTorch attention in ``dtype`` and of tiled runs with exp2 folded in."""
    ways = [partial(tiled, steps=EXP2_STEPS)]
    if dtype == "fp32":
        ways += [partial(unlucky, seed=seed) for seed in range(1, UNLUCKY + 1)]
    runs = [_plain(q, k, v, options, TORCH_DTYPES[dtype])]
    for way in ways:
        o, lse = multi_head(q, k, v, way, arithmetic=arithmetic, **options)
        runs.append({"o": _rounded(o, dtype), "lse": lse})
    if dtype != "fp32":
        runs += [_prescaled(q, k, v, options, dtype, arithmetic, log2e) for log2e in (LOG2E, np.float32(1))]
    return runs


def _prescaled(q, k, v, options, dtype: str, arithmetic: Arithmetic, log2e) -> dict[str, np.ndarray]:
    """Q times scale (and log2(e)) is rounded to ``dtype`` before the product, as early FlashAttention kernels did."""
    q = _rounded(q * (options["scale"] * log2e), dtype)
    unscaled = {**options, "scale": 1 / log2e}
    o, lse = multi_head(q, k, v, lambda p: tiled(p, EXP2_STEPS), arithmetic=arithmetic, **unscaled)
    return {"o": _rounded(o, dtype), "lse": lse}


def unlucky(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A tiled run with bad roundings; the first takes key by key, as additions one after another lose the most."""
    if seed == 1:
        problem = replace(problem, block_q=max(1, len(problem.Q)), block_k=1)
    return tiled(problem, _unlucky_steps(seed))


def _unlucky_steps(seed: int) -> Steps:
    """Scores off by what the order of their sums can cost, and weights by what a GPU's exp2 may be, up or down."""
    signs = _signs(seed)

    def score(tile):
        return EXP2_STEPS.score(tile) + _off(tile.Q_i, tile.K_j.T, signs) * (np.float32(tile.problem.scale) * LOG2E)

    def weights(S, m):
        P = EXP2_STEPS.weights(S, m)
        return P + 4 * UNIT * signs(P.shape) * P

    return replace(EXP2_STEPS, score=score, weights=weights)


def _signs(seed: int) -> Callable:
    """A function of a shape: 1 or -1 for each element. With seed 0 all are 1: what all sums share was rounded first."""
    rng = np.random.default_rng(seed)
    return lambda shape: rng.choice(np.float32((-1, 1)), shape) if seed else np.ones(shape, np.float32)


def _off(A: np.ndarray, B: np.ndarray, signs: Callable) -> np.ndarray:
    """What the order of the sums in A @ B can cost: n roundings of random sign make sqrt(n). A lone term has none."""
    additions = np.maximum((A != 0).astype(A.dtype) @ (B != 0).astype(A.dtype) - 1, 0)
    return UNIT * signs(additions.shape) * np.sqrt(additions) * (np.abs(A) @ np.abs(B))


def _base_2(tile, lse: np.ndarray, score=EXP2_STEPS.score) -> np.ndarray:
    S = np.where(tile.visible, score(tile), np.float32(-np.inf))
    return np.exp2(S - finite(lse)[:, None] * LOG2E)


def _worst_order(dO: np.ndarray, O: np.ndarray) -> np.ndarray:
    """D off by as much as the order of an fp32 sum can make it: where dP and D cancel, only this error is left."""
    return (dO * O).sum(axis=1) + 2 * UNIT * np.abs(dO * O).sum(axis=1)


EXP2_BACKWARD = replace(backward.STEPS, probabilities=_base_2, row_dot=_worst_order)


def _unlucky_backward(seed: int) -> backward.Steps:
    """S and dP off by what the order of their sums can cost, up or down; with seed 0 all up."""
    signs, score = _signs(seed), _unlucky_steps(seed).score
    return replace(
        EXP2_BACKWARD,
        probabilities=lambda tile, lse: _base_2(tile, lse, score),
        score_gradient=lambda P, dO, V, D: backward.score_gradient(P, dO, V, D) + P * _off(dO, V.T, signs),
    )


def honest_backward(x, options, dtype: str, arithmetic: Arithmetic) -> list[dict[str, np.ndarray]]:
    """Outputs ``o, dq, dk, dv`` of PyTorch's autograd in ``dtype`` and of tiled backwards.

    ``x`` holds q, k, v, do and the saved o and lse. The tiled runs take the saved ones, in base e, in base 2 and in
    fp32 with bad roundings, and those of a forward in the same precision.
    """
    q, k, v, do = (x[name] for name in ("q", "k", "v", "do"))
    _, own, *more = honest_forward(q, k, v, options, dtype, arithmetic)
    runs = [_autograd(q, k, v, do, options, TORCH_DTYPES[dtype])]
    kinds = [(own, own, EXP2_BACKWARD), (own, x, EXP2_BACKWARD), (own, x, backward.STEPS)]
    if dtype == "fp32":
        kinds += [(run, x, _unlucky_backward(seed)) for seed, run in enumerate(more)]  # the first: all up
    for forward_run, left, steps in kinds:
        run = lambda *head, steps=steps: backward.tiled(*head, steps)  # noqa: E731
        saved = left["o"], left["lse"]
        gradients = backward.multi_head(q, k, v, do, run, saved, arithmetic=arithmetic, **options)
        named = zip(("dq", "dk", "dv"), (_rounded(g, dtype) for g in gradients), strict=True)
        runs.append({"o": forward_run["o"], **dict(named)})
    return runs


def _plain(q, k, v, options, dtype) -> dict[str, np.ndarray]:
    q, k, v = (torch.from_numpy(x).to(dtype) for x in (q, k, v))
    o, scores = _attention(q, k, v, options)
    _, scores = _attention(q.float(), k.float(), v.float(), options)
    return {"o": o.double().numpy(), "lse": torch.logsumexp(scores, dim=-1).double().numpy()}


def _autograd(q, k, v, do, options, dtype) -> dict[str, np.ndarray]:
    leaves = [torch.from_numpy(x).to(dtype).requires_grad_() for x in (q, k, v)]
    o, _ = _attention(*leaves, options)
    gradients = torch.autograd.grad(o, leaves, torch.from_numpy(do).to(dtype))
    named = dict(zip(("o", "dq", "dk", "dv"), (o.detach(), *gradients), strict=True))
    return {name: x.double().nan_to_num(0.0).numpy() for name, x in named.items()}  # NaN: rows that see no key


def _attention(q, k, v, options) -> tuple[torch.Tensor, torch.Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    seen = torch.from_numpy(visible_keys(q.shape[2], k.shape[2], options["causal"], options["offset"]))
    scores = (q @ k.mT * options["scale"]).masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1).nan_to_num(0.0) @ v, scores


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    return x.astype(NUMPY_DTYPES[dtype]).astype(np.float64)
