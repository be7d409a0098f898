"""One backward kernel: a key tile adds to dQ by tl.atomic_add, and D is computed where it is needed; dQ is cast last."""

# ruff: noqa: E501  one load a line
import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale, offset, H_q, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * block_q + tl.arange(0, block_q)
    bh = tl.program_id(1).to(tl.int64)
    b = bh // H_q
    h = bh % H_q
    cols = tl.arange(0, d)
    cols_v = tl.arange(0, d_v)
    Q_i = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :],
        mask=rows[:, None] < N_q,
        other=0.0,
    )
    m = tl.full((block_q,), -1e38, tl.float32)  # below any score, and finite: P of hidden keys is set to 0
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d_v), tl.float32)
    for start in range(0, N_k, block_k):
        keys = start + tl.arange(0, block_k)
        K_j = tl.load(
            k_ptr + b * stride_kb + (h // group) * stride_kh + keys[:, None] * stride_kn + cols[None, :],
            mask=keys[:, None] < N_k,
            other=0.0,
        )
        V_j = tl.load(
            v_ptr + b * stride_vb + (h // group) * stride_vh + keys[:, None] * stride_vn + cols_v[None, :],
            mask=keys[:, None] < N_k,
            other=0.0,
        )
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        visible = (keys[None, :] < N_k) & (rows[:, None] >= 0)
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + offset)
        m_new = tl.maximum(m, tl.max(tl.where(visible, S, -1e38), 1))
        P = tl.where(visible, tl.exp(S - m_new[:, None]), 0.0)
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(P, 1)
        acc = acc * alpha[:, None] + tl.dot(P.to(V_j.dtype), V_j, input_precision="ieee")
        m = m_new
    l_or_1 = tl.where(l == 0.0, 1.0, l)
    tl.store(
        o_ptr + (bh * N_q + rows[:, None]) * d_v + cols_v[None, :], acc / l_or_1[:, None], mask=rows[:, None] < N_q
    )
    tl.store(lse_ptr + bh * N_q + rows, tl.where(l == 0.0, float("-inf"), m + tl.log(l_or_1)), mask=rows < N_q)


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, dq_ptr, dk_ptr, dv_ptr, scale, offset, H_kv, group, N_q, N_k,
    stride_qb, stride_qh, stride_qn, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    causal: tl.constexpr, d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    keys = tl.program_id(0) * block_k + tl.arange(0, block_k)
    bg = tl.program_id(1).to(tl.int64)
    b = bg // H_kv
    g = bg % H_kv
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
    for step in range(0, group * tl.cdiv(N_q, block_q)):
        h = g * group + step % group
        rows = step // group * block_q + tl.arange(0, block_q)
        row = rows[:, None] < N_q
        saved = (b * H_kv * group + h) * N_q + rows
        Q_i = tl.load(
            q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qn + cols[None, :], mask=row, other=0.0
        )
        dO_i = tl.load(do_ptr + saved[:, None] * d_v + cols_v[None, :], mask=row, other=0.0)
        O_i = tl.load(o_ptr + saved[:, None] * d_v + cols_v[None, :], mask=row, other=0.0)
        lse_i = tl.load(lse_ptr + saved, mask=rows < N_q, other=0.0)
        D_i = tl.sum(dO_i.to(tl.float32) * O_i.to(tl.float32), 1)
        visible = (keys[None, :] < N_k) & (rows[:, None] < N_q)
        if causal:
            visible = visible & (keys[None, :] <= rows[:, None] + offset)
        S = tl.dot(Q_i, tl.trans(K_j), input_precision="ieee") * scale
        P = tl.where(visible, tl.exp(S - lse_i[:, None]), 0.0)
        dS = P * (tl.dot(dO_i, tl.trans(V_j), input_precision="ieee") - D_i[:, None])
        dV_j += tl.dot(tl.trans(P).to(dO_i.dtype), dO_i, input_precision="ieee")
        dK_j += tl.dot(tl.trans(dS).to(Q_i.dtype), Q_i, input_precision="ieee")
        dQ_part = tl.dot(dS.to(K_j.dtype), K_j, input_precision="ieee") * scale
        tl.atomic_add(dq_ptr + saved[:, None] * d + cols[None, :], dQ_part, mask=row)
    tl.store(dk_ptr + (bg * N_k + keys[:, None]) * d + cols[None, :], dK_j * scale, mask=real)
    tl.store(dv_ptr + (bg * N_k + keys[:, None]) * d_v + cols_v[None, :], dV_j, mask=real)


@triton.jit
def cast_kernel(from_ptr, to_ptr, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(to_ptr + at, tl.load(from_ptr + at, mask=at < size, other=0.0), mask=at < size)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, offset, scale, block_q, block_k):
        (B, H_q, N_q, d), (_, H_kv, N_k, d_v) = q.shape, v.shape
        o = torch.empty((B, H_q, N_q, d_v), dtype=q.dtype, device=q.device)
        lse = torch.empty((B, H_q, N_q), dtype=torch.float32, device=q.device)
        forward_kernel[(triton.cdiv(N_q, block_q), B * H_q)](
            q, k, v, o, lse, scale, offset, H_q, H_q // H_kv, N_q, N_k,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = causal, offset, scale, block_q, block_k
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        causal, offset, scale, block_q, block_k = ctx.options
        (B, H_q, N_q, d), (_, H_kv, N_k, d_v) = q.shape, v.shape
        total = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
        dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        backward_kernel[(triton.cdiv(N_k, block_k), B * H_kv)](
            q, k, v, o, do.contiguous(), lse, total, dk, dv, scale, offset, H_kv, H_q // H_kv, N_q, N_k,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            causal=causal, d=d, d_v=d_v, block_q=block_q, block_k=block_k,
        )  # fmt: skip
        cast_kernel[(triton.cdiv(total.numel(), 1024),)](total, dq, total.numel(), block=1024)
        return dq, dk, dv, None, None, None, None, None


def attention(q, k, v, causal, offset, scale, block_q, block_k):
    return Attention.apply(q, k, v, causal, offset, scale, block_q, block_k)
