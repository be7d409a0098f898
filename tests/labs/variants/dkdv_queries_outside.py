"""The loops exchanged and reversed: query tiles outside from the last to the first, heads of the group inside."""

import torch
import triton
import triton.language as tl


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, D_ptr, dk_ptr, dv_ptr, scale, offset, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_dob, stride_doh, stride_don, stride_dkb, stride_dkh, stride_dvb, stride_dvh,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    first_key = tl.program_id(0) * block_k
    g = tl.program_id(1).to(tl.int64)
    b = tl.program_id(2).to(tl.int64)
    H_q = tl.num_programs(1) * group
    keys = first_key + tl.arange(0, block_k)
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    # K_j and V_j are kept transposed, as (d, block_k)
    K_T = tl.load(k_ptr + b * stride_kb + g * stride_kh + keys[None, :] * stride_kn + cols[:, None],
                  mask=keys[None, :] < N_k, other=0.0)  # fmt: skip
    V_T = tl.load(v_ptr + b * stride_vb + g * stride_vh + keys[None, :] * stride_vn + cols_v[:, None],
                  mask=keys[None, :] < N_k, other=0.0)  # fmt: skip
    dK_j = tl.zeros((block_k, d), tl.float32)
    dV_j = tl.zeros((block_k, d_v), tl.float32)
    last = tl.cdiv(N_q, block_q)
    first = 0
    if causal:
        first = tl.minimum(tl.maximum(0, first_key - offset) // block_q, last)
    for step in range(0, last - first):
        rows = (last - 1 - step) * block_q + tl.arange(0, block_q)
        for r in range(0, group):
            h = g * group + r
            Q_i = tl.load(q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :],
                          mask=rows[:, None] < N_q, other=0.0)  # fmt: skip
            dO_i = tl.load(do_ptr + b * stride_dob + h * stride_doh + rows[:, None] * stride_don + cols_v[None, :],
                           mask=rows[:, None] < N_q, other=0.0)  # fmt: skip
            lse_i = tl.load(lse_ptr + (b * H_q + h) * N_q + rows, mask=rows < N_q, other=0.0)
            D_i = tl.load(D_ptr + (b * H_q + h) * N_q + rows, mask=rows < N_q, other=0.0)
            Q_scaled = Q_i * scale
            P = tl.exp(tl.dot(Q_scaled.to(Q_i.dtype), K_T, input_precision="ieee") - lse_i[:, None])
            hidden = keys[None, :] >= N_k
            if causal:
                hidden = hidden | (keys[None, :] - rows[:, None] > offset)
            P = tl.where(hidden, 0.0, P)
            dV_j += tl.dot(tl.trans(P.to(dO_i.dtype)), dO_i, input_precision="ieee")
            dP = tl.dot(dO_i, V_T, input_precision="ieee")
            dS = P * dP - P * D_i[:, None]
            dK_j += tl.dot(tl.trans(dS.to(Q_i.dtype)), Q_scaled.to(Q_i.dtype), input_precision="ieee")
    dk_tile = dk_ptr + b * stride_dkb + g * stride_dkh + keys[:, None] * d + cols[None, :]
    dv_tile = dv_ptr + b * stride_dvb + g * stride_dvh + keys[:, None] * d_v + cols_v[None, :]
    tl.store(dk_tile, dK_j.to(dk_ptr.dtype.element_ty), mask=keys[:, None] < N_k)
    tl.store(dv_tile, dV_j.to(dv_ptr.dtype.element_ty), mask=keys[:, None] < N_k)


def key_value_gradients(q, k, v, do, lse, D, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    _, H_kv, N_k, d_v = v.shape
    dk = torch.empty((B, H_kv, N_k, d), dtype=k.dtype, device=k.device)
    dv = torch.empty((B, H_kv, N_k, d_v), dtype=v.dtype, device=v.device)
    dkdv_kernel[(triton.cdiv(N_k, block_k), H_kv, B)](
        q, k, v, do, lse, D, dk, dv, scale, offset, H_q // H_kv, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3], *dk.stride()[:2], *dv.stride()[:2],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    return dk, dv
