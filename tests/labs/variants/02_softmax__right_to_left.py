"""Blocks from the right, exp2 with log2(e) folded in, a reciprocal instead of a division."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, sx, sy, block: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
    x_row = x_ptr + tl.program_id(0) * sx
    y_row = y_ptr + tl.program_id(0) * sy
    blocks = tl.cdiv(columns, block)
    m, l = float("-inf"), 0.0
    for back in range(0, blocks):
        c = (blocks - 1 - back) * block + tl.arange(0, block)
        x = tl.load(x_row + c, mask=c < columns, other=0.0).to(tl.float32) * LOG2E
        x = tl.where(c < columns, x, float("-inf"))
        m_new = tl.maximum(tl.max(x, 0), m)
        l = tl.sum(tl.exp2(x - m_new), 0) + l * tl.exp2(m - m_new)
        m = m_new
    for j in range(0, blocks):
        c = j * block + tl.arange(0, block)
        x = tl.load(x_row + c, mask=c < columns, other=0.0).to(tl.float32) * LOG2E
        tl.store(y_row + c, (tl.exp2(x - m) * (1.0 / l)).to(y_ptr.dtype.element_ty), mask=c < columns)


def online_row_softmax(x, block):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), y.stride(0), block=block)
    return y
