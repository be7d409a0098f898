"""What this GPU really does: copy and L2 bandwidth, matrix products, exp2 and multiply-adds a clock, launch cost."""

from __future__ import annotations

import statistics

import torch
import triton
import triton.language as tl

TIMES = 20


@triton.jit
def exp2_kernel(out_ptr, trips, block: tl.constexpr):
    x = tl.arange(0, block) * 1e-6
    for _ in range(trips):
        x = tl.exp2(x) - 1.0
    tl.store(out_ptr + tl.program_id(0) * block + tl.arange(0, block), x)


@triton.jit
def multiply_add_kernel(out_ptr, trips, a, b, block: tl.constexpr):
    x = tl.arange(0, block) * 1e-6
    for _ in range(trips):
        x = x * a + b
        x = x * a + b
        x = x * a + b
        x = x * a + b
    tl.store(out_ptr + tl.program_id(0) * block + tl.arange(0, block), x)


@triton.jit
def read_kernel(x_ptr, out_ptr, tiles, trips, block: tl.constexpr):
    total = tl.zeros((block,), tl.float32)
    for trip in range(trips):
        tile = (tl.program_id(0) + trip * 37) % tiles
        total += tl.load(x_ptr + tile * block + tl.arange(0, block))
    tl.store(out_ptr + tl.program_id(0) * block + tl.arange(0, block), total)


@triton.jit
def empty_kernel():
    pass


def seconds(call) -> float:
    """Median device seconds of one call, back to back."""
    for _ in range(3):
        call()
    found = []
    for _ in range(TIMES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found)


def copy_tbs() -> float:
    """TB/s of a device copy of 4 GiB, bytes read and written."""
    x = torch.empty(2**30, dtype=torch.float32, device="cuda").normal_()
    y = torch.empty_like(x)
    return 2 * 4 * x.numel() / seconds(lambda: y.copy_(x)) / 1e12


def matmul_tflops() -> float:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / seconds(lambda: a @ b) / 1e12


def l2_tbs(mib: int = 16) -> float:
    """TB/s that all SMs read of ``mib`` MiB that stay in the L2."""
    block, programs, trips = 4096, 132 * 8, 256
    x = torch.zeros(mib * 2**18, device="cuda")
    out = torch.empty(programs * block, device="cuda")
    took = seconds(lambda: read_kernel[(programs,)](x, out, x.numel() // block, trips, block=block, num_warps=8))
    return programs * trips * block * 4 / took / 1e12


def operations(kernel, each: int, *arguments) -> float:
    """Operations a second of a register-only kernel that does ``each`` a trip and lane."""
    block, programs, trips = 1024, 132 * 8, 4096
    out = torch.empty(programs * block, device="cuda")
    took = seconds(lambda: kernel[(programs,)](out, trips, *arguments, block=block, num_warps=8))
    return each * programs * trips * block / took


def launch_seconds() -> float:
    """What an empty kernel costs between two events while the host is far ahead."""
    spin = torch.empty(2**28, dtype=torch.float32, device="cuda")
    empty_kernel[(1,)]()
    found = []
    for _ in range(TIMES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        spin.zero_()
        begin.record()
        empty_kernel[(1,)]()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found)


def measure() -> dict[str, float]:
    """All of it, in the units of reference.machines."""
    return {
        "copy_tbs": copy_tbs(),
        "matmul_tflops": matmul_tflops(),
        "l2_tbs": l2_tbs(),
        "exp2_per_s": operations(exp2_kernel, 1),
        "multiply_adds_per_s": operations(multiply_add_kernel, 4, 0.999, 1e-3),
        "launch_s": launch_seconds(),
    }
