"""The state is kept normalised after every block, as FlashAttention 1 stores it: another rescale, the same result."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(s_ptr, v_ptr, o_ptr, columns, ss, sv, d_v: tl.constexpr, block: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, d_v)
    m, l = float("-inf"), 0.0
    o = tl.zeros((d_v,), tl.float32)
    for start in range(0, columns, block):
        keys = start + tl.arange(0, block)
        s = tl.load(s_ptr + row * ss + keys, mask=keys < columns, other=float("-inf")).to(tl.float32)
        V = tl.load(v_ptr + keys[:, None] * sv + c[None, :], mask=keys[:, None] < columns, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(s, 0))
        P = tl.exp(s - m_new)
        l_new = l * tl.exp(m - m_new) + tl.sum(P, 0)
        o = o * (l * tl.exp(m - m_new) / l_new) + tl.sum(P[:, None] * V, 0) / l_new
        m, l = m_new, l_new
    tl.store(o_ptr + row * d_v + c, o)


def weighted_sum(s, v, block):
    o = torch.empty((s.shape[0], v.shape[1]), dtype=s.dtype, device=s.device)
    kernel[(s.shape[0],)](s, v, o, s.shape[1], s.stride(0), v.stride(0), d_v=v.shape[1], block=block)
    return o
