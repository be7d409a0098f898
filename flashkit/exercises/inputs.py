"""Values that bring mistakes to light: the same few kinds serve every attention exercise.

A kind shapes the *scores*: one coordinate of Q is constant and the same coordinate of K carries a trend, so
that a score is trend + noise. Values are rounded to the kernel's dtype here, so that oracle and kernel see the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flashkit.exercises.contract import Case
from reference.shapes import FLOAT16, FLOAT32

ARITHMETIC = {"fp32": FLOAT32, "fp16": FLOAT16}  # what a kernel computes in, by its inputs' dtype
NUMPY_DTYPES = {"fp32": np.float32, "fp16": np.float16}
ITEMSIZE = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes
CARRIER = 8.0  # Q's constant coordinate


def _normal(rng, q, k):
    """Scores of a few units, as in a trained model."""


def _large(rng, q, k):
    """Scores around +-40, beyond +-88 for some: exp without a maximum overflows fp32."""
    q *= 6.0
    k *= 6.0


def _trend(q, k, trend):
    q[..., 0] = CARRIER
    k[..., 0] = trend * np.sqrt(q.shape[-1]) / CARRIER


def _negative(rng, q, k):
    """All scores near -200: exp underflows unless the maximum starts at -inf and is subtracted."""
    _trend(q, k, np.full(k.shape[-2], -200.0))


def _rising(rng, q, k):
    """Later keys score higher, so that every tile raises the maximum."""
    _trend(q, k, np.linspace(0.0, 14.0, k.shape[-2]))


def _falling(rng, q, k):
    """Later keys score 250 lower: a tile's own maximum makes exp overflow."""
    _trend(q, k, np.linspace(0.0, -250.0, k.shape[-2]))


def _peak(rng, q, k):
    """The last key scores 300: rows that may not see it must not feel it."""
    _trend(q, k, np.where(np.arange(k.shape[-2]) == k.shape[-2] - 1, 300.0, 0.0))


def _trap(rng, q, k):
    """Every score is exactly -2**31 (d=16): a finite mask value such as -1e9 would win over real keys."""
    q[...] = 0.0
    q[..., 0] = 2.0**16
    k[..., 0] = -(2.0**17)


def _alike(rng, q, k):
    """All keys but the first weigh 0.5222, which fp16 rounds up by 4.6e-4: sums of rounded weights are off by that.

    Q's one coordinate is such that rounding it after scaling, with or without log2(e), costs nothing (d=16).
    """
    q[...] = k[...] = 0.0
    q[..., 0] = 8.9296875
    k[..., 1:, 0] = -0.291015625


KINDS: dict[str, Callable] = {
    "normal": _normal,
    "large": _large,
    "negative": _negative,
    "rising": _rising,
    "falling": _falling,
    "peak": _peak,
    "trap": _trap,
    "alike": _alike,
}


@lru_cache(maxsize=256)  # naming a mistake asks for the same case's values many times
def attention_inputs(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q ``(B, H_q, N_q, d)``, K ``(B, H_kv, N_k, d)``, V ``(B, H_kv, N_k, d_v)`` as float64 of dtype's values."""
    sizes, rng = case.sizes, np.random.default_rng(case.seed)
    q = rng.standard_normal((sizes["B"], sizes["H_q"], sizes["N_q"], sizes["d"]))
    k = rng.standard_normal((sizes["B"], sizes["H_kv"], sizes["N_k"], sizes["d"]))
    v = rng.standard_normal((sizes["B"], sizes["H_kv"], sizes["N_k"], sizes["d_v"]))
    KINDS[case.values](rng, q, k)
    if case.identity:
        v[...] = np.eye(sizes["N_k"], sizes["d_v"])
    return tuple(x.astype(NUMPY_DTYPES[case.dtype]).astype(np.float64) for x in (q, k, v))
