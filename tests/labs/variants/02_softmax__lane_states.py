"""Each lane carries its own maximum and sum; the lanes are merged once, after the loop, as CUDA threads would be."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, columns, sx, sy, block: tl.constexpr):
    x_row, y_row = x_ptr + tl.program_id(0) * sx, y_ptr + tl.program_id(0) * sy
    lane = tl.arange(0, block)
    m = tl.full((block,), float("-inf"), tl.float32)
    l = tl.zeros((block,), tl.float32)
    for start in range(0, columns, block):
        x = tl.load(x_row + start + lane, mask=start + lane < columns, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        frame = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - frame) + tl.exp(x - frame)
        m = m_new
    row_m = tl.max(m, 0)
    row_l = tl.sum(l * tl.exp(m - row_m), 0)
    for start in range(0, columns, block):
        x = tl.load(x_row + start + lane, mask=start + lane < columns, other=float("-inf")).to(tl.float32)
        tl.store(y_row + start + lane, tl.exp(x - row_m) / row_l, mask=start + lane < columns)


def online_row_softmax(x, block):
    rows, columns = x.shape
    y = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    kernel[(rows,)](x, y, columns, x.stride(0), y.stride(0), block=block)
    return y
