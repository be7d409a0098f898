"""Gluon's names for Hopper under one spelling: the only place that knows how Triton 3.6 to 3.9 differ.

3.6 says ``gl.thread_barrier`` where later versions say ``gl.barrier``; from 3.9 the two TMA copies are called
``async_load`` and ``async_store``. What is exported here are Triton's own builtins, so kernels may use them.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
store_wait = tma.store_wait
block_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier

__all__ = [
    "TensorDescriptor", "block_barrier", "copy_in", "copy_out", "fence_async_shared", "gl", "gluon", "mbarrier",
    "store_wait", "warpgroup_mma", "warpgroup_mma_wait",
]  # fmt: skip
