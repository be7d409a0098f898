"""Descriptors made in the kernel, of one head each, and the key tiles from right to left."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    causal: tl.constexpr, d: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i, b, h = tl.program_id(0), tl.program_id(1) // H_q, tl.program_id(1) % H_q
    g = h // group
    q = tl.make_tensor_descriptor(q_ptr + b * stride_qb + h * stride_qh, [N_q, d], [stride_qn, 1], [block_q, d])
    k = tl.make_tensor_descriptor(k_ptr + b * stride_kb + g * stride_kh, [N_k, d], [stride_kn, 1], [block_k, d])
    v = tl.make_tensor_descriptor(v_ptr + b * stride_vb + g * stride_vh, [N_k, d], [stride_vn, 1], [block_k, d])
    o = tl.make_tensor_descriptor(o_ptr + (b * H_q + h) * N_q * d, [N_q, d], [d, 1], [block_q, d])
    rows = i * block_q + tl.arange(0, block_q)
    Q_i = q.load([i * block_q, 0])
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d), tl.float32)
    end = N_k
    if causal:
        end = tl.minimum(N_k, tl.maximum(0, (i + 1) * block_q + offset))
    tiles = tl.cdiv(end, block_k)
    for back in range(tiles):
        start = (tiles - 1 - back) * block_k
        keys = start + tl.arange(0, block_k)
        S = tl.dot(Q_i, tl.trans(k.load([start, 0])), input_precision="ieee") * scale
        visible = keys[None, :] < N_k
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + offset)
        S = tl.where(visible, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m - m_finite)
        P = tl.exp(S - m_finite[:, None])
        l = alpha * l + tl.sum(P, 1)
        acc = alpha[:, None] * acc + tl.dot(P.to(v.dtype), v.load([start, 0]), input_precision="ieee")
        m = m_new
    l_or_1 = tl.where(l == 0.0, 1.0, l)
    o.store([i * block_q, 0], (acc / l_or_1[:, None]).to(o.dtype))
    lse = tl.where(l == 0.0, float("-inf"), m + tl.log(l_or_1))
    tl.store(lse_ptr + (b * H_q + h) * N_q + rows, lse, mask=rows < N_q)


def flash_descriptors(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k = k.shape[1:3]
    o = torch.empty((B, H_q, N_q, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(triton.cdiv(N_q, block_q), B * H_q)](
        q, k, v, o, lse, scale, offset, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        causal=causal, d=d, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return o, lse
