"""What every oracle checks and shares: argument shapes, which keys a query sees, and the arithmetic's types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Arithmetic:
    """Types a kernel computes in: ``accumulator`` for S, m, l, acc; ``operand`` for P before P V (V's dtype)."""

    accumulator: np.dtype
    operand: np.dtype

    def as_operand(self, P: np.ndarray) -> np.ndarray:
        """P rounded to the type in which it enters a matrix product, held in the accumulation type."""
        return P.astype(self.operand).astype(self.accumulator)


FLOAT64 = Arithmetic(np.dtype(np.float64), np.dtype(np.float64))
FLOAT32 = Arithmetic(np.dtype(np.float32), np.dtype(np.float32))
FLOAT16 = Arithmetic(np.dtype(np.float32), np.dtype(np.float16))


def check_head(Q, K, V, mask, block_q: int, block_k: int) -> None:
    """Raise ValueError with one sentence unless Q (N_q, d), K (N_k, d), V (N_k, d_v), mask (N_q, N_k) agree."""
    for name, x in (("Q", Q), ("K", K), ("V", V)):
        if np.ndim(x) != 2:
            raise ValueError(f"{name} must be one head, a matrix with 2 dimensions, but has shape {np.shape(x)}")
    if Q.shape[1] != K.shape[1]:
        raise ValueError(f"Q and K must have the same head dimension, but have d={Q.shape[1]} and d={K.shape[1]}")
    if len(K) != len(V):
        raise ValueError(f"K and V must have the same number of keys, but have {len(K)} and {len(V)}")
    mask = mask if mask is None else np.asarray(mask)
    if mask is not None and (mask.shape != (len(Q), len(K)) or mask.dtype != bool):
        raise ValueError(f"mask must be boolean with shape {(len(Q), len(K))}, but is {mask.dtype} {mask.shape}")
    if block_q < 1 or block_k < 1:
        raise ValueError(f"block_q and block_k must be at least 1, but are {block_q} and {block_k}")


def visible_keys(N_q: int, N_k: int, causal: bool, offset: int = 0, mask: np.ndarray | None = None) -> np.ndarray:
    """Boolean ``(N_q, N_k)``: True where query i may attend key j, that is ``j <= i + offset`` when causal."""
    seen = np.ones((N_q, N_k), bool)
    if causal:
        seen &= np.arange(N_k)[None, :] <= np.arange(N_q)[:, None] + offset
    return seen if mask is None else seen & mask


def kv_head(h: int, H_q: int, H_kv: int) -> int:
    """The K/V head that query head ``h`` reads; raises ValueError unless H_q is a multiple of H_kv."""
    if H_kv < 1 or H_q % H_kv:
        raise ValueError(f"query heads must be a multiple of K/V heads, but there are {H_q} and {H_kv}")
    return h // (H_q // H_kv)
