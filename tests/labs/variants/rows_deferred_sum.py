"""The sum l is a tile of partial sums, reduced once after the loop; the maximum starts at the lowest finite float."""

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
    m = tl.full((block_q,), -3.4028234663852886e38, tl.float32)
    L = tl.zeros((block_q, block_k), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for start in range(0, N_k, block_k):
        keys = start + tl.arange(0, block_k)
        # Load K_j and V_j, score them, update m, l and acc: about 11 lines.
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.exp(S - m_new[:, None])
        L = alpha[:, None] * L + P
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    # The one division, and the store: about 2 lines.
    O_i = acc / tl.sum(L, 1)[:, None]
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


def attention_rows(q, k, v, block_q, block_k):
    N_q, d = q.shape
    N_k, d_v = v.shape
    o = torch.empty((N_q, d_v), dtype=q.dtype, device=q.device)
    # The grid: 1 line, `grid = (...)`.
    grid = (triton.cdiv(N_q, block_q),)
    rows_kernel[grid](
        q, k, v, o, d**-0.5, N_q, N_k, q.stride(0), k.stride(0), v.stride(0), o.stride(0),
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
