"""Two halves of the row by two programs, and a second kernel that merges their states: split-KV decoding in small."""

import torch
import triton
import triton.language as tl


@triton.jit
def half(s_ptr, v_ptr, m_ptr, l_ptr, acc_ptr, columns, ss, sv, d_v: tl.constexpr, block: tl.constexpr):
    row, part, c = tl.program_id(0), tl.program_id(1), tl.arange(0, d_v)
    middle = tl.cdiv(columns, 2)
    first, last = part * middle, tl.minimum((part + 1) * middle, columns)
    m, l = float("-inf"), 0.0
    acc = tl.zeros((d_v,), tl.float32)
    for start in range(first, last, block):
        keys = start + tl.arange(0, block)
        s = tl.load(s_ptr + row * ss + keys, mask=keys < last, other=float("-inf")).to(tl.float32)
        V = tl.load(v_ptr + keys[:, None] * sv + c[None, :], mask=keys[:, None] < last, other=0.0)
        m_new = tl.maximum(m, tl.max(s, 0))
        P = tl.exp(s - m_new)
        l = l * tl.exp(m - m_new) + tl.sum(P, 0)
        acc = acc * tl.exp(m - m_new) + tl.sum(P[:, None] * V, 0)
        m = m_new
    tl.store(m_ptr + 2 * row + part, m)
    tl.store(l_ptr + 2 * row + part, l)
    tl.store(acc_ptr + (2 * row + part) * d_v + c, acc)


@triton.jit
def combine(m_ptr, l_ptr, acc_ptr, o_ptr, d_v: tl.constexpr):
    row, two, c = tl.program_id(0), tl.arange(0, 2), tl.arange(0, d_v)
    m = tl.load(m_ptr + 2 * row + two)
    weight = tl.exp(m - tl.max(m, 0))
    l = tl.sum(weight * tl.load(l_ptr + 2 * row + two), 0)
    acc = tl.load(acc_ptr + (2 * row + two)[:, None] * d_v + c[None, :])
    tl.store(o_ptr + row * d_v + c, tl.sum(weight[:, None] * acc, 0) / l)


def weighted_sum(s, v, block):
    (rows, columns), d_v = s.shape, v.shape[1]
    m, l = torch.empty((2, rows, 2), dtype=torch.float32, device=s.device)
    acc = torch.empty((rows, 2, d_v), dtype=torch.float32, device=s.device)
    o = torch.empty((rows, d_v), dtype=s.dtype, device=s.device)
    half[(rows, 2)](s, v, m, l, acc, columns, s.stride(0), v.stride(0), d_v=d_v, block=block)
    combine[(rows,)](m, l, acc, o, d_v=d_v)
    return o
