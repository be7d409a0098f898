"""One program a query row, a vector of d_v numbers each; the strides of a row are worked out by the host."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(
    o_ptr, do_ptr, D_ptr, N_q, stride_ob, stride_oh, stride_on, stride_dob, stride_doh, stride_don, d_v: tl.constexpr
):
    row = tl.program_id(0)
    h = tl.program_id(1).to(tl.int64)
    b = tl.program_id(2).to(tl.int64)
    cols = tl.arange(0, d_v)
    o = tl.load(o_ptr + b * stride_ob + h * stride_oh + row * stride_on + cols).to(tl.float32)
    do = tl.load(do_ptr + b * stride_dob + h * stride_doh + row * stride_don + cols).to(tl.float32)
    tl.store(D_ptr + (b * tl.num_programs(1) + h) * N_q + row, tl.sum(o * do, 0))


def row_dot(o, do, block_q):
    B, H_q, N_q, d_v = o.shape
    D = torch.empty((B, H_q, N_q), dtype=torch.float32, device=o.device)
    row_kernel[(N_q, H_q, B)](o, do, D, N_q, *o.stride()[:3], *do.stride()[:3], d_v=d_v)
    return D
