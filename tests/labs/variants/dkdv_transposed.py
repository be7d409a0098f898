"""S^T = K Q^T, so that P^T and dS^T need no transpose; base 2; 1-D grid; the scale folded into the last store."""

import torch
import triton
import triton.language as tl


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, D_ptr, dk_ptr, dv_ptr, scale, scale_log2, offset, H_kv, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(N_k, block_k)
    j = tl.program_id(0) % tiles
    bg = (tl.program_id(0) // tiles).to(tl.int64)
    b = bg // H_kv
    g = bg % H_kv
    keys = j * block_k + tl.arange(0, block_k)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    real = keys[:, None] < N_k
    K_j = tl.load(
        k_ptr + b * stride_kb + g * stride_kh + keys[:, None] * stride_kn + cols[None, :], mask=real, other=0.0
    )
    V_j = tl.load(
        v_ptr + b * stride_vb + g * stride_vh + keys[:, None] * stride_vn + cols_v[None, :], mask=real, other=0.0
    )
    dK_j = tl.zeros((block_k, d), tl.float32)
    dV_j = tl.zeros((block_k, d_v), tl.float32)
    start = 0
    if causal:
        start = tl.maximum(0, j * block_k - offset) // block_q
    for h in range(g * group, g * group + group):
        for i in range(start, tl.cdiv(N_q, block_q)):
            rows = i * block_q + tl.arange(0, block_q)
            row = rows < N_q
            q_tile = q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :]
            do_tile = do_ptr + b * stride_dob + h * stride_doh + rows[:, None] * stride_don + cols_v[None, :]
            Q_i = tl.load(q_tile, mask=row[:, None], other=0.0)
            dO_i = tl.load(do_tile, mask=row[:, None], other=0.0)
            # lse = inf in rows that do not exist makes their P 0
            lse_log2 = (
                tl.load(lse_ptr + (b * H_kv * group + h) * N_q + rows, mask=row, other=float("inf"))
                * 1.4426950408889634
            )
            lse_log2 = tl.where(lse_log2 == float("-inf"), 0.0, lse_log2)
            D_i = tl.load(D_ptr + (b * H_kv * group + h) * N_q + rows, mask=row, other=0.0)
            S_T = tl.dot(K_j, tl.trans(Q_i), input_precision="ieee") * scale_log2
            S_T = tl.where(real, S_T, float("-inf"))
            if causal:
                S_T = tl.where(keys[:, None] <= rows[None, :] + offset, S_T, float("-inf"))
            P_T = tl.exp2(S_T - lse_log2[None, :])
            dV_j = tl.dot(P_T.to(dO_i.dtype), dO_i, acc=dV_j, input_precision="ieee")
            dP_T = tl.dot(V_j, tl.trans(dO_i), input_precision="ieee")
            dS_T = P_T * (dP_T - D_i[None, :])
            dK_j = tl.dot(dS_T.to(Q_i.dtype), Q_i, acc=dK_j, input_precision="ieee")
    tl.store(dk_ptr + (bg * N_k + keys[:, None]) * d + cols[None, :], dK_j * scale, mask=real)
    tl.store(dv_ptr + (bg * N_k + keys[:, None]) * d_v + cols_v[None, :], dV_j, mask=real)


def key_value_gradients(q, k, v, do, lse, D, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    _, H_kv, N_k, d_v = v.shape
    dk = torch.empty((B, H_kv, N_k, d), dtype=k.dtype, device=k.device)
    dv = torch.empty((B, H_kv, N_k, d_v), dtype=v.dtype, device=v.device)
    dkdv_kernel[(triton.cdiv(N_k, block_k) * B * H_kv,)](
        q, k, v, do, lse, D, dk, dv, scale, scale * 1.4426950408889634, offset, H_kv, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return dk, dv
