"""Honest runs in the kernel's own precision: their distance from float64 sets the tolerance of a check.

The rule is the official FlashAttention tests': an output passes when its error is at most twice the error of
plain attention computed in the same precision. The honest runs are PyTorch's order, a fused kernel's, and in half
precision one that scales Q first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from flashkit.exercises.inputs import NUMPY_DTYPES
from flashkit.runtime.placement import TORCH_DTYPES
from reference import backward
from reference.forward import STEPS, State, finite, multi_head, tiled
from reference.shapes import Arithmetic, visible_keys

LOG2E = np.float32(np.log2(np.e))

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
    """Outputs ``o`` and ``lse`` of plain PyTorch attention in ``dtype`` and of a tiled run with exp2 folded in."""
    o, lse = multi_head(q, k, v, lambda p: tiled(p, EXP2_STEPS), arithmetic=arithmetic, **options)
    runs = [_plain(q, k, v, options, TORCH_DTYPES[dtype]), {"o": _rounded(o, dtype), "lse": lse}]
    if dtype != "fp32":
        runs.append(_prescaled(q, k, v, options, dtype, arithmetic))
    return runs


def _prescaled(q, k, v, options, dtype: str, arithmetic: Arithmetic) -> dict[str, np.ndarray]:
    """Q times scale and log2(e) is rounded to ``dtype`` before the product, as early FlashAttention kernels did."""
    q = _rounded(q * (options["scale"] * LOG2E), dtype)
    unscaled = {**options, "scale": 1 / LOG2E}
    o, lse = multi_head(q, k, v, lambda p: tiled(p, EXP2_STEPS), arithmetic=arithmetic, **unscaled)
    return {"o": _rounded(o, dtype), "lse": lse}


def _base_2(tile, lse: np.ndarray) -> np.ndarray:
    S = np.where(tile.visible, EXP2_STEPS.score(tile), np.float32(-np.inf))
    return np.exp2(S - finite(lse)[:, None] * LOG2E)


def _worst_order(dO: np.ndarray, O: np.ndarray) -> np.ndarray:
    """D off by as much as the order of an fp32 sum can make it: where dP and D cancel, only this error is left."""
    return (dO * O).sum(axis=1) + np.float32(2**-23) * np.abs(dO * O).sum(axis=1)


EXP2_BACKWARD = replace(backward.STEPS, probabilities=_base_2, row_dot=_worst_order)


def honest_backward(x, options, dtype: str, arithmetic: Arithmetic) -> list[dict[str, np.ndarray]]:
    """Outputs ``o, dq, dk, dv`` of PyTorch's autograd in ``dtype`` and of tiled backwards.

    ``x`` holds q, k, v, do and the saved o and lse. The tiled runs take the saved ones, in base e and in base 2, and
    those of a forward in the same precision.
    """
    q, k, v, do = (x[name] for name in ("q", "k", "v", "do"))
    own = honest_forward(q, k, v, options, dtype, arithmetic)[1]
    runs = [_autograd(q, k, v, do, options, TORCH_DTYPES[dtype])]
    for o, lse, steps in (
        (own["o"], own["lse"], EXP2_BACKWARD),
        (x["o"], x["lse"], EXP2_BACKWARD),
        (x["o"], x["lse"], backward.STEPS),
    ):
        run = lambda *head, steps=steps: backward.tiled(*head, steps)  # noqa: E731
        gradients = backward.multi_head(q, k, v, do, run, (o, lse), arithmetic=arithmetic, **options)
        named = zip(("dq", "dk", "dv"), (_rounded(g, dtype) for g in gradients), strict=True)
        runs.append({"o": own["o"], **dict(named)})
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
