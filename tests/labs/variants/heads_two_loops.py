"""Two key loops: whole tiles that every row sees, without any mask, then the tiles at the diagonal and the tail."""

import torch
import triton
import triton.language as tl


@triton.jit
def tiles(
    m, l, acc, Q_i, k_ptr, v_ptr, stride_kn, stride_vn, rows, low, high, scale, offset, N_k,
    masked: tl.constexpr, causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    for start in range(low, high, block_k):
        keys = start + tl.arange(0, block_k)
        k_tile = k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :]
        v_tile = v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :]
        if masked:
            K_j = tl.load(k_tile, mask=keys[:, None] < N_k, other=0.0)
            V_j = tl.load(v_tile, mask=keys[:, None] < N_k, other=0.0)
        else:
            K_j = tl.load(k_tile)
            V_j = tl.load(v_tile)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        if masked:
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
    return m, l, acc


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * block_q
    b = (tl.program_id(1) // H_q).to(tl.int64)
    h = (tl.program_id(1) % H_q).to(tl.int64)
    k_ptr += b * stride_kb + h // group * stride_kh
    v_ptr += b * stride_vb + h // group * stride_vh
    rows = first + tl.arange(0, block_q)
    q_tile = q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + tl.arange(0, d)[None, :]
    Q_i = tl.load(q_tile, mask=rows[:, None] < N_q, other=0.0)
    whole = N_k // block_k * block_k
    end = N_k
    if causal:
        whole = tl.minimum(N_k, tl.maximum(0, first + offset + 1)) // block_k * block_k
        end = tl.minimum(N_k, tl.maximum(0, first + block_q + offset))
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    m, l, acc = tiles(m, l, acc, Q_i, k_ptr, v_ptr, stride_kn, stride_vn, rows, 0, whole, scale, offset, N_k,
                      False, causal, d, d_v, block_k)  # fmt: skip
    m, l, acc = tiles(m, l, acc, Q_i, k_ptr, v_ptr, stride_kn, stride_vn, rows, whole, end, scale, offset, N_k,
                      True, causal, d, d_v, block_k)  # fmt: skip
    l_safe = tl.where(l == 0.0, 1.0, l)
    o_tile = o_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_on + tl.arange(0, d_v)[None, :]
    tl.store(o_tile, (acc / l_safe[:, None]).to(o_ptr.dtype.element_ty), mask=rows[:, None] < N_q)
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe))
    tl.store(lse_ptr + (b * H_q + h) * N_q + rows, lse, mask=rows < N_q)


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
