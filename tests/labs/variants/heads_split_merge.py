"""Keys split among programs, as in decode: partial m, l and acc go to scratch memory, a second kernel merges them."""

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(
    q_ptr, k_ptr, v_ptr, m_ptr, l_ptr, acc_ptr, scale, offset, H_q, group, N_q, N_k, splits, share,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    i, split, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b = (head // H_q).to(tl.int64)
    h = (head % H_q).to(tl.int64)
    k_ptr += b * stride_kb + h // group * stride_kh
    v_ptr += b * stride_vb + h // group * stride_vh
    rows = i * block_q + tl.arange(0, block_q)
    q_tile = q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + tl.arange(0, d)[None, :]
    Q_i = tl.load(q_tile, mask=rows[:, None] < N_q, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    end = tl.minimum(N_k, (split + 1) * share)
    if causal:
        end = tl.minimum(end, tl.maximum(0, (i + 1) * block_q + offset))
    for start in range(split * share, end, block_k):
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
    place = (head * splits + split) * N_q + rows
    tl.store(m_ptr + place, m, mask=rows < N_q)
    tl.store(l_ptr + place, l, mask=rows < N_q)
    tl.store(acc_ptr + place[:, None] * d_v + tl.arange(0, d_v)[None, :], acc, mask=rows[:, None] < N_q)


@triton.jit
def merge_kernel(m_ptr, l_ptr, acc_ptr, o_ptr, lse_ptr, N_q, splits, d_v: tl.constexpr, block_q: tl.constexpr):
    head = tl.program_id(1)
    rows = tl.program_id(0) * block_q + tl.arange(0, block_q)
    real = rows < N_q
    columns = tl.arange(0, d_v)[None, :]
    m = tl.full((block_q,), float("-inf"), tl.float32)
    for split in range(splits):
        m = tl.maximum(m, tl.load(m_ptr + (head * splits + split) * N_q + rows, mask=real, other=0.0))
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for split in range(splits):
        place = (head * splits + split) * N_q + rows
        alpha = tl.exp(tl.load(m_ptr + place, mask=real, other=0.0) - m_safe)
        l += alpha * tl.load(l_ptr + place, mask=real, other=0.0)
        acc += alpha[:, None] * tl.load(acc_ptr + place[:, None] * d_v + columns, mask=real[:, None], other=0.0)
    l_safe = tl.where(l == 0.0, 1.0, l)
    out = head * N_q + rows
    tl.store(
        o_ptr + out[:, None] * d_v + columns, (acc / l_safe[:, None]).to(o_ptr.dtype.element_ty), mask=real[:, None]
    )
    tl.store(lse_ptr + out, tl.where(l == 0.0, float("-inf"), m + tl.log(l_safe)), mask=real)


def flash_forward(q, k, v, causal, offset, scale, block_q, block_k):
    B, H_q, N_q, d = q.shape
    H_kv, N_k, d_v = v.shape[1:]
    o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
    splits = 2
    share = triton.cdiv(triton.cdiv(N_k, block_k), splits) * block_k
    m = torch.empty((B * H_q, splits, N_q), dtype=torch.float32, device=q.device)
    l = torch.empty_like(m)
    acc = torch.empty((B * H_q, splits, N_q, d_v), dtype=torch.float32, device=q.device)
    tiles = triton.cdiv(N_q, block_q)
    partial_kernel[(tiles, splits, B * H_q)](
        q, k, v, m, l, acc, scale, offset, H_q, H_q // H_kv, N_q, N_k, splits, share,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
    )  # fmt: skip
    merge_kernel[(tiles, B * H_q)](m, l, acc, o, lse, N_q, splits, d_v=d_v, block_q=block_q)
    return o, lse
