"""One program for all query heads that share a K/V head: their rows lie one under the other in a single tile."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_kv, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(1) // H_kv).to(tl.int64)
    g = (tl.program_id(1) % H_kv).to(tl.int64)
    packed = tl.program_id(0) * block_q + tl.arange(0, block_q)
    real = packed < group * N_q
    h = g * group + packed % group  # neighbouring rows are the same query of the next head
    rows = packed // group
    q_tile = q_ptr + b * stride_qb + h[:, None] * stride_qh + rows[:, None] * stride_qn + tl.arange(0, d)[None, :]
    Q_i = tl.load(q_tile, mask=real[:, None], other=0.0)
    k_ptr += b * stride_kb + g * stride_kh
    v_ptr += b * stride_vb + g * stride_vh
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, tl.max(rows, 0) + 1 + offset))
    for start in range(0, end, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(
            v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :], mask=keys[:, None] < N_k, other=0.0
        )
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        visible = keys[None, :] < N_k
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + offset)
        S = tl.where(visible, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m - m_safe)
        P = tl.exp(S - m_safe[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    l_safe = tl.where(l == 0.0, 1.0, l)
    o_tile = o_ptr + b * stride_ob + h[:, None] * stride_oh + rows[:, None] * stride_on + tl.arange(0, d_v)[None, :]
    tl.store(o_tile, (acc / l_safe[:, None]).to(o_ptr.dtype.element_ty), mask=real[:, None])
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe))
    tl.store(lse_ptr + (b * H_kv * group + h) * N_q + rows, lse, mask=real)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    group = H_q // H_kv
    forward_kernel[(triton.cdiv(N_q * group, block_q), B * H_kv)](
        q, k, v, o, lse, scale, offset, H_kv, group, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
