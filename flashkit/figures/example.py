"""The course's running example: 5 tokens, tiles of 4, so that the second tile has a tail."""

from __future__ import annotations

import numpy as np

from reference.forward import Problem

Q = np.array([[1.0, 0.5], [-0.5, 1.5], [2.0, -1.0], [0.5, 1.0], [1.5, 2.0]])
K = np.array([[0.5, 1.0], [1.5, -0.5], [-1.0, 0.5], [1.0, 1.0], [2.0, 1.5]])
V = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0], [4.0, -1.0], [-2.0, 2.0]])
dO = np.array([[1.0, -1.0], [0.5, 2.0], [-1.0, 1.0], [2.0, 0.5], [1.0, 1.5]])  # the gradient that comes in


def example(causal: bool = True, block_q: int = 4, block_k: int = 4, **options) -> Problem:
    """5 queries and keys, d = d_v = 2, in tiles of 4; ``options`` are those of :class:`reference.forward.Problem`."""
    return Problem(Q, K, V, causal=causal, block_q=block_q, block_k=block_k, **options)
