"""Keys from right to left, exp2 with log2(e) folded into the scale."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    rows = i * block_q + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    # Load Q_i and start the state m, l, acc of rows that have seen no key: about 4 lines.
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for step in range(0, tl.cdiv(N_k, block_k)):
        keys = (tl.cdiv(N_k, block_k) - 1 - step) * block_k + tl.arange(0, block_k)
        # Load K_j and V_j, score them, update m, l and acc: about 11 lines.
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp2(m - m_new)
        P = tl.exp2(S - m_new[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    # The one division, and the store: about 2 lines.
    O_i = acc / l[:, None]
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


def attention_rows(q, k, v, block_q, block_k):
    N_q, d = q.shape
    N_k, d_v = v.shape
    o = torch.empty((N_q, d_v), dtype=q.dtype, device=q.device)
    # The grid: 1 line, `grid = (...)`.
    grid = (triton.cdiv(N_q, block_q),)
    rows_kernel[grid](
        q, k, v, o, d**-0.5 * 1.4426950408889634, N_q, N_k, q.stride(0), k.stride(0), v.stride(0), o.stride(0),
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
