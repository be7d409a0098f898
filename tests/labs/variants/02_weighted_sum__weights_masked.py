"""exp2, a state of shape (1,), and the mask applied to the weights, not to the loaded scores."""

import triton
import triton.language as tl


@triton.jit
def kernel(s_ptr, v_ptr, o_ptr, columns, ss, sv, so, d_v: tl.constexpr, block: tl.constexpr):
    row, c, lanes = tl.program_id(0), tl.arange(0, d_v), tl.arange(0, block)
    m = tl.full((1,), float("-inf"), tl.float32)
    l = tl.zeros((1,), tl.float32)
    acc = tl.zeros((1, d_v), tl.float32)
    for j in range(0, tl.cdiv(columns, block)):
        real = j * block + lanes < columns
        s = tl.load(s_ptr + row * ss + j * block + lanes, mask=real, other=0.0).to(tl.float32) * 1.4426950408889634
        v_tile = v_ptr + (j * block + lanes)[:, None] * sv + c[None, :]
        V = tl.load(v_tile, mask=real[:, None], other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(tl.where(real, s, float("-inf")), 0))
        P = tl.where(real, tl.exp2(s - m_new), 0.0)
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(P, 0)
        acc = acc * alpha[:, None] + tl.sum(P[:, None] * V, 0)[None, :]
        m = m_new
    tl.store(o_ptr + row * so + c[None, :], acc / l[:, None])


def weighted_sum(s, v, block):
    rows, columns = s.shape
    o = s.new_empty((rows, v.shape[1]))
    kernel[(rows,)](s, v, o, columns, s.stride(0), v.stride(0), o.stride(0), d_v=v.shape[1], block=block)
    return o
