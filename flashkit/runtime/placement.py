"""Where a tensor's logical elements lie in memory: layouts, guard zones, and giant strides on tiny data.

Every tensor gets an allocation of its own, with guard zones of NaN before and after it and NaN in every gap,
so that an address that misses the logical elements is never another tensor's data.
"""

from __future__ import annotations

import mmap

import numpy as np
import torch

from flashkit.runtime.call import Argument

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
GUARD = 4096  # elements before and after: more than a tile of rows of any case
HUGE_STRIDE = 2**30 + 64  # two of them wrap a signed 32-bit offset


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Element strides of a layout. The last dimension is contiguous, but for ``expanded``.

    contiguous  row-major
    bshd        a (B, S, H, D) allocation seen as (B, H, S, D), as PyTorch models hand it over
    padded      every row, head and batch followed by a gap
    huge        the first dimension's stride is over 2**30 elements, so that 32-bit offsets wrap
    one-row     every row is the same row in memory: all strides 0 but the last
    expanded    every element is the same number in memory: all strides 0, as ``o.sum().backward()`` gives
    """
    if layout in ("one-row", "expanded"):
        return (*[0] * (len(shape) - 1), int(layout == "one-row"))
    order = list(range(len(shape)))
    if layout == "bshd" and len(shape) == 4:
        order = [0, 2, 1, 3]
    gaps = {"padded": [24, 40, 56]}.get(layout, [0, 0, 0])
    strides = [0] * len(shape)
    step = 1
    for depth, axis in enumerate(reversed(order)):
        strides[axis] = step
        step = step * max(shape[axis], 1) + (gaps[min(depth, 2)] if depth < len(order) - 1 else 0)
    if layout == "huge":
        strides[0] = HUGE_STRIDE
    return tuple(strides)


def place(argument: Argument, device: str = "cpu") -> torch.Tensor:
    """A fresh tensor holding the argument's values, laid out as asked, NaN all around."""
    values = torch.from_numpy(np.ascontiguousarray(argument.values)).to(TORCH_DTYPES[argument.dtype])
    strides = strides_of(tuple(values.shape), argument.layout)
    extent = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) if values.numel() else 0
    if argument.layout == "huge":
        storage = _untouched(extent + 2 * GUARD, values.dtype, device)
    else:
        storage = torch.full((extent + 2 * GUARD,), float("nan"), dtype=values.dtype, device=device)
    tensor = torch.as_strided(storage, tuple(values.shape), strides, GUARD)
    distinct = tuple(slice(None if stride else 1) for stride in strides)
    tensor[distinct].copy_(values[distinct])  # PyTorch refuses to write one number through many elements
    return tensor


def _untouched(elements: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Address space without memory: pages are only taken when something is written there."""
    if device != "cpu":
        return torch.empty(elements, dtype=dtype, device=device)
    size = elements * dtype.itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=dtype)
