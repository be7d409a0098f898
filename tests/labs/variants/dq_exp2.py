"""Base 2 with the scores and lse scaled by log2(e), keys from right to left, S^T = K Q^T and dQ = (dS^T)^T K."""

import torch
import triton
import triton.language as tl


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, D_ptr, dq_ptr, scale, offset, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(2) * block_q
    h = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0).to(tl.int64)
    saved = (b * tl.num_programs(1) + h) * N_q
    rows = first_row + tl.arange(0, block_q)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    real = rows < N_q
    Q_i = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :], mask=real[:, None], other=0.0
    )
    dO_i = tl.load(
        do_ptr + b * stride_dob + h * stride_doh + rows[:, None] * stride_don + cols_v[None, :],
        mask=real[:, None],
        other=0.0,
    )
    lse_2 = tl.load(lse_ptr + saved + rows, mask=real, other=0.0) * 1.4426950408889634
    lse_2 = tl.where(lse_2 > float("-inf"), lse_2, 0.0)
    D_i = tl.load(D_ptr + saved + rows, mask=real, other=0.0)
    k_ptr += b * stride_kb + (h // group) * stride_kh
    v_ptr += b * stride_vb + (h // group) * stride_vh
    dQ_i = tl.zeros((block_q, d), tl.float32)
    tiles = tl.cdiv(N_k, block_k)
    if causal:
        tiles = tl.minimum(tiles, tl.maximum(0, first_row + block_q + offset + block_k - 1) // block_k)
    for step in range(0, tiles):
        keys = (tiles - 1 - step) * block_k + tl.arange(0, block_k)
        K_j = tl.load(k_ptr + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < N_k, other=0.0)
        V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)
        S_T = tl.dot(K_j, tl.trans(Q_i), input_precision="ieee") * (scale * 1.4426950408889634)
        S_T = tl.where(keys[:, None] < N_k, S_T, float("-inf"))
        if causal:
            S_T = tl.where(keys[:, None] - offset <= rows[None, :], S_T, float("-inf"))
        P_T = tl.exp2(S_T - lse_2[None, :])
        dS_T = P_T * (tl.dot(V_j, tl.trans(dO_i), input_precision="ieee") - D_i[None, :]) * scale
        dQ_i += tl.dot(tl.trans(dS_T).to(K_j.dtype), K_j, input_precision="ieee")
    tl.store(dq_ptr + (saved + rows[:, None]) * d + cols[None, :], dQ_i.to(dq_ptr.dtype.element_ty), mask=real[:, None])


def query_gradient(q, k, v, do, lse, D, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    _, H_kv, N_k, d_v = v.shape
    dq = torch.empty((B, H_q, N_q, d), dtype=q.dtype, device=q.device)
    dq_kernel[(B, H_q, triton.cdiv(N_q, block_q))](
        q, k, v, do, lse, D, dq, scale, offset, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return dq
