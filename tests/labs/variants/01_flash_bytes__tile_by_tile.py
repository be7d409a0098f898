"""Counted by walking the query tiles, as a kernel would."""


def flash_bytes(N, d, d_v, block_q, itemsize):
    moved = 0
    for start in range(0, N, block_q):
        rows = min(block_q, N - start)
        moved += rows * d + N * d + N * d_v + rows * d_v
    return moved * itemsize
