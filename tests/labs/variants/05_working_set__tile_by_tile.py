"""Adds up a list of (rows, columns, bytes an element), in NumPy numbers."""

import numpy as np


def working_set(block_q, block_k, d, d_v, itemsize):
    tiles = np.array(
        [
            (block_q, d, itemsize),
            (block_k, d, itemsize),
            (block_k, d_v, itemsize),
            (block_q, block_k, 4),
            (block_q, d_v, 4),
        ]
    )
    return int(tiles.prod(axis=1).sum())
