"""One metered run of a small kernel, so that what torch and Triton import on first use is there before a fork."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from flashkit.instruments import compile_gate
from flashkit.runtime.call import Argument, Call, Outcome, Returned
from flashkit.runtime.runner import run


@triton.jit
def _copy_kernel(x_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
    tl.store(out_ptr + lanes, x, mask=lanes < n)


def copy(x, block):
    out = torch.empty_like(x)
    _copy_kernel[(triton.cdiv(x.shape[0], block),)](x, out, x.shape[0], block=block)
    return out


def warm() -> Outcome:
    """Runs the kernel as a student's would run; the outcome has no problem where all is well."""
    call = Call({"x": Argument(np.arange(20.0))}, {"block": 16}, (Returned("out", (20,), "fp32"),))
    outcome = run(copy, call, show=False)
    for launch in outcome.launches:
        compile_gate.describe(launch)
    return outcome
