"""Two passes over the keys: the maximum of each row first, then sums against it; nothing is ever rescaled."""

import torch
import triton
import triton.language as tl


@triton.jit
def scores(
    Q_i, k_ptr, stride_kn, rows, start, scale, offset, N_k, causal: tl.constexpr, d: tl.constexpr, block_k: tl.constexpr
):
    keys = start + tl.arange(0, block_k)
    K_j = tl.load(k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :], mask=keys[:, None] < N_k, other=0.0)
    S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
    visible = keys[None, :] < N_k
    if causal:
        visible = visible & (keys[None, :] - rows[:, None] <= offset)
    return tl.where(visible, S, float("-inf"))


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(1) // H_q).to(tl.int64)
    h = (tl.program_id(1) % H_q).to(tl.int64)
    rows = tl.program_id(0) * block_q + tl.arange(0, block_q)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h // group * stride_kh
    v_ptr += b * stride_vb + h // group * stride_vh
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + tl.arange(0, d)[None, :], mask=rows[:, None] < N_q, other=0.0)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, (tl.program_id(0) + 1) * block_q + offset))
    m = tl.full((block_q,), float("-inf"), tl.float32)
    for start in range(0, end, block_k):
        S = scores(Q_i, k_ptr, stride_kn, rows, start, scale, offset, N_k, causal, d, block_k)
        m = tl.maximum(m, tl.max(S, 1))
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for start in range(0, end, block_k):
        S = scores(Q_i, k_ptr, stride_kn, rows, start, scale, offset, N_k, causal, d, block_k)
        P = tl.exp(S - m_safe[:, None])
        keys = start + tl.arange(0, block_k)
        V_j = tl.load(
            v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :], mask=keys[:, None] < N_k, other=0.0
        )
        l += tl.sum(P, 1)
        acc += tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
    l_safe = tl.where(l == 0.0, 1.0, l)
    o_tile = o_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_on + tl.arange(0, d_v)[None, :]
    tl.store(o_tile, (acc / l_safe[:, None]).to(o_ptr.dtype.element_ty), mask=rows[:, None] < N_q)
    tl.store(lse_ptr + tl.program_id(1) * N_q + rows, m + tl.log(l_safe), mask=rows < N_q)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(triton.cdiv(N_q, block_q), B * H_q)](
        q, k, v, o, lse, scale, offset, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
