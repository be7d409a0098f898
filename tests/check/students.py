"""What students hand in for 00.add (and once for 03.tile): each function does one thing that a check must survive."""

import builtins
import sys
import time

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    mask = lanes < n
    x = tl.load(x_ptr + lanes, mask=mask, other=0.0)
    y = tl.load(y_ptr + lanes, mask=mask, other=0.0)
    tl.store(out_ptr + lanes, x + y, mask=mask)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=lanes < n, other=0.0), mask=lanes < n)


@triton.jit
def nan_kernel(out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out_ptr + lanes, tl.full((block,), float("nan"), tl.float32), mask=lanes < n)


@triton.jit
def endless_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.arange(0, block)
    i = 0
    while i >= 0:
        tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=lanes < n, other=0.0), mask=lanes < n)


@triton.jit
def into_input_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    mask = lanes < n
    x = tl.load(x_ptr + lanes, mask=mask, other=0.0) + tl.load(y_ptr + lanes, mask=mask, other=0.0)
    tl.store(out_ptr + lanes, x, mask=mask)
    tl.store(x_ptr + lanes, x, mask=mask)


@triton.jit
def far_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.arange(0, 64)
    tl.store(out_ptr + 1_000_000_000 + lanes, 1.0)


@triton.jit
def breaking_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    mask = lanes < n
    for i in range(0, 4):
        x = tl.load(x_ptr + lanes, mask=mask, other=0.0)
        y = tl.load(y_ptr + lanes, mask=mask, other=0.0)
        tl.store(out_ptr + lanes, x + y, mask=mask)
        if i == 2:
            break


def launch(kernel, x, y, block, out=None):
    n = x.shape[0]
    out = torch.empty_like(x) if out is None else out
    kernel[(triton.cdiv(n, block),)](x, y, out, n, block=block)
    return out


def right(x, y, block):
    return launch(add_kernel, x, y, block)


def raises(x, y, block):
    raise ValueError("my own mistake")


def typo(x, y, block):
    return launch(add_kernel, x, z, block)  # noqa: F821


def hangs(x, y, block):
    while True:
        time.sleep(0.001)


def hangs_and_catches(x, y, block):
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            pass


def endless(x, y, block):
    return launch(endless_kernel, x, y, block)


def exits(x, y, block):
    sys.exit(0)


def quits(x, y, block):
    builtins.exit()


def deep(x, y, block):
    return deep(x, y, block)


def shape(x, y, block):
    return right(x, y, block)[:, None]


def dtype(x, y, block):
    return right(x, y, block).half()


def device(x, y, block):
    right(x, y, block)
    return torch.empty_like(x, device="meta")


def nothing(x, y, block):
    right(x, y, block)


def two(x, y, block):
    return right(x, y, block), x


def array(x, y, block):
    return right(x, y, block).numpy()


def number(x, y, block):
    return 3.0


def subclass(x, y, block):
    return torch.nn.Parameter(right(x, y, block), requires_grad=False)


def nan(x, y, block):
    out = torch.empty_like(x)
    nan_kernel[(triton.cdiv(x.shape[0], block),)](out, x.shape[0], block=block)
    return out


def view(x, y, block):
    right(x, y, block)
    return x[:]


def clone(x, y, block):
    right(x, y, block)
    return x.clone()


def torch_add(x, y, block):
    return x + y


def torch_add_after(x, y, block):
    right(x, y, block)
    return x + y


def laundered(x, y, block):
    total, out = x + y, torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.shape[0], block),)](total, out, x.shape[0], block=block)
    return out


def oracle_inside(x, y, block):
    import reference.forward  # noqa: F401

    return right(x, y, block)


def exercises_inside(x, y, block):
    from flashkit.exercises import start_here  # noqa: F401

    return right(x, y, block)


def prints(x, y, block):
    for _ in range(100):
        print("x" * 1_000_000)
    return right(x, y, block)


def swallows(x, y, block):
    out = torch.empty_like(x)
    try:
        launch(far_kernel, x, y, block, out)
    except Exception:
        pass
    return launch(add_kernel, x, y, block, out)


def modifies(x, y, block):
    return launch(into_input_kernel, x, y, block)


def modifies_by_torch(x, y, block):
    out = right(x, y, block)
    x.zero_()
    return out


def far(x, y, block):
    return launch(far_kernel, x, y, block)


@triton.jit
def blank_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    raise NotImplementedError()


def blank(x, y, block):
    return launch(blank_kernel, x, y, block)


def breaking(x, y, block):
    return launch(breaking_kernel, x, y, block)


_kept = {}


def cached(x, y, block):
    """Whatever the first call of this length gave."""
    if x.shape not in _kept:
        _kept[x.shape] = right(x, y, block)
    return _kept[x.shape]


def unwritten(x, y, block):
    return torch.empty_like(x)


def from_numpy(x, y, block):
    right(x, y, block)
    return torch.from_numpy(np.asarray(x) + np.asarray(y))


def attention(q, k, v, block_q, block_k):
    return torch.nn.functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def matmul(q, k, v, block_q, block_k):
    return torch.softmax(q @ k.T * q.shape[1] ** -0.5, dim=-1) @ v
