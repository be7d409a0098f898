"""One program a query row: scores are sums of products, no matrix product anywhere."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    b = (tl.program_id(1) // H_q).to(tl.int64)
    h = (tl.program_id(1) % H_q).to(tl.int64)
    k_ptr += b * stride_kb + h // group * stride_kh
    v_ptr += b * stride_vb + h // group * stride_vh
    q = tl.load(q_ptr + b * stride_qb + h * stride_qh + row * stride_qn + tl.arange(0, d)).to(tl.float32) * scale
    last = N_k
    if causal:
        last = tl.minimum(N_k, row + offset + 1)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((d_v,), tl.float32)
    for start in range(0, last, block_k):
        keys = start + tl.arange(0, block_k)
        real = keys[:, None] < last
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + tl.arange(0, d)[None, :], mask=real, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + tl.arange(0, d_v)[None, :], mask=real, other=0.0)
        s = tl.where(keys < last, tl.sum(K_j.to(tl.float32) * q[None, :], 1), float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new)
        l = alpha * l + tl.sum(p, 0)
        acc = alpha * acc + tl.sum(p[:, None] * V_j.to(tl.float32), 0)
        m = m_new
    divisor = tl.where(l == 0.0, 1.0, l)
    o_row = o_ptr + b * stride_ob + h * stride_oh + row * stride_on + tl.arange(0, d_v)
    tl.store(o_row, (acc / divisor).to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + (b * H_q + h) * N_q + row, m + tl.log(divisor))


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    forward_kernel[(N_q, B * H_q)](
        q, k, v, o, lse, scale, offset, H_q, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_k=64,
    )  # fmt: skip
    return o, lse
