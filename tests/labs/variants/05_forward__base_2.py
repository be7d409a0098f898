"""Base 2, K loaded transposed, a three-dimensional grid, key tiles from right to left, and tile names of its own."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale_log2, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_on,
    D: tl.constexpr, D_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    h, b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    in_rows = rows[:, None] < N_q
    q_ptr += b * stride_qb + h * stride_qh
    Q_i = tl.load(q_ptr + rows[:, None] * stride_qn + tl.arange(0, D)[None, :], mask=in_rows, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D_V), tl.float32)
    tiles = tl.cdiv(N_k, BLOCK_N)
    for step in range(0, tiles):
        keys = (tiles - 1 - step) * BLOCK_N + tl.arange(0, BLOCK_N)
        k_at = k_ptr + b * stride_kb + h * stride_kh + keys[None, :] * stride_kn
        K_T = tl.load(k_at + tl.arange(0, D)[:, None], mask=keys[None, :] < N_k, other=0.0)
        S = tl.dot(Q_i, K_T, input_precision="ieee") * scale_log2
        S = tl.where(keys[None, :] < N_k, S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp2(m - m_new)
        P = tl.exp2(S - m_new[:, None])
        l = l * alpha + tl.sum(P, 1)
        v_at = v_ptr + b * stride_vb + h * stride_vh + keys[:, None] * stride_vn
        V_j = tl.load(v_at + tl.arange(0, D_V)[None, :], mask=keys[:, None] < N_k, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    o_at = o_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_on + tl.arange(0, D_V)[None, :]
    tl.store(o_at, (acc / l[:, None]).to(o_ptr.dtype.element_ty), mask=in_rows)


def tiled_forward(q, k, v, block_q, block_k, warps, stages):
    (B, H, N_q, d), (N_k, d_v) = q.shape, v.shape[2:]
    o = torch.empty((B, H, N_q, d_v), dtype=q.dtype, device=q.device)
    kernel[(triton.cdiv(N_q, block_q), H, B)](
        q, k, v, o, d**-0.5 * 1.4426950408889634, N_q, N_k,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3],
        D=d, D_V=d_v, BLOCK_M=block_q, BLOCK_N=block_k, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return o
