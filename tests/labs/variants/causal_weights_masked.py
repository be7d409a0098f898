"""Hidden weights are set to 0 after exp; hidden scores get the row's own lowest score, so that no -inf appears."""

import torch
import triton
import triton.language as tl


@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, offset, N_q, N_k, stride_qn, stride_kn, stride_vn, stride_on,
    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0)
    rows = i * block_q + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    # The whole body: 03.rows, a loop that ends in time, the mask, the empty rows: about 22 lines.
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + cols[None, :], mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))  # one past the last key that the last row sees
    for start in range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        visible = (keys[None, :] <= rows[:, None] + offset) & (keys[None, :] < N_k)
        lowest = tl.min(S, 1)[:, None]
        S = tl.where(visible, S, lowest)
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.where(visible, tl.exp(S - m_new[:, None]), 0.0)
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    O_i = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    tl.store(o_ptr + rows[:, None] * stride_on + cols_v[None, :], O_i, mask=rows[:, None] < N_q)


def attention_causal(q, k, v, offset, block_q, block_k):
    N_q, d = q.shape
    N_k, d_v = v.shape
    o = torch.empty((N_q, d_v), dtype=q.dtype, device=q.device)
    grid = (triton.cdiv(N_q, block_q),)
    causal_kernel[grid](
        q, k, v, o, d**-0.5, offset, N_q, N_k, q.stride(0), k.stride(0), v.stride(0), o.stride(0),
        d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o
