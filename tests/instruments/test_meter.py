"""The meter counts to the byte, stops before harm, and accuses nobody who did nothing wrong."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashkit.instruments.meter import Meter
from flashkit.instruments.record import MeterStop


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def add_without_masks(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def copy_rows(x, out, stride_h, stride_n, rows, out_h, out_n, mask_rows: tl.constexpr, block: tl.constexpr, d: tl.constexpr):
    i, j, h = tl.arange(0, block)[:, None], tl.arange(0, d)[None, :], tl.program_id(0)
    keep = (i < rows) & (j < d)
    if mask_rows:
        tile = tl.load(x + h * stride_h + i * stride_n + j, mask=keep, other=0.0)
    else:
        tile = tl.load(x + h * stride_h + i * stride_n + j)
    tl.store(out + h * out_h + i * out_n + j, tile, mask=keep)


def metered(kernel, grid, *args, names=None, outputs=None, **kwargs):
    """Launch once under a meter and return the finished record."""
    with Meter(names) as meter:
        kernel[grid](*args, **kwargs)
    return meter.finish(outputs)


def kinds(record):
    return [f.kind for f in record.findings]


def test_bytes_are_those_of_unmasked_lanes():
    x, y, out = torch.ones(70), torch.ones(70), torch.zeros(70)
    record = metered(add, (3,), x, y, out, 70, 32, names={"x": x, "y": y}, outputs={"o": out})
    assert out.eq(2).all() and record.findings == []
    for name in "xy":
        assert (record.traffic[name].loaded, record.traffic[name].distinct_loaded) == (280, 280)
    assert (record.traffic["o"].stored, record.traffic["o"].distinct_stored, record.traffic["o"].loaded) == (280, 280, 0)
