"""Measures cases on this GPU: seconds, what the compiler made of every launch, and how many blocks the driver fits.

Kernels are compiled by many processes at once first; then one process times them.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache

import torch

from benchmarks.cases import Case, buffers, call, solution
from flashkit.instruments import dry_run
from flashkit.instruments.gpu_clock import GPU
from flashkit.instruments.resources import Resources, resources
from flashkit.instruments.timing import measure

ROUNDS, PASSES, COMPILERS = 7, 3, 14
Job = tuple[Case, dict[str, int]]  # a case, and options such as num_warps for all its launches

_solution = cache(solution)


def launch_resources(job: Job) -> list[Resources]:
    """What the compiler makes of each launch of a case, for sm_90; no GPU is used."""
    case, options = job
    launches = dry_run.launches(call(case, _solution(case.kernel), buffers(case, "meta")))
    return [resources(launch, archs=(90,), **options)[0] for launch in launches]


def _prepare(job: Job) -> tuple[list[Resources], list[int], str]:
    """In a process of the pool: resources, the driver's blocks an SM, and why the case cannot run ("" when it can)."""
    rows = launch_resources(job)
    case, options = job
    compiled = []
    try:
        tensors = buffers(case, "cuda")
        GPU(tensors).refresh(0)
        with _keeping(compiled), dry_run.with_options(**options):
            call(case, _solution(case.kernel), tensors)()
        return rows, [_driver_blocks(kernel) for kernel in compiled], ""
    except Exception as error:  # too much shared memory, or no compiler takes it
        return rows, [], f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"


def _keeping(compiled: list):
    """A context in which what each launch returns, the compiled kernel, is kept."""

    def keep(run):
        def kept(kernel, *args, **kwargs):
            compiled.append(run(kernel, *args, **kwargs))
            return compiled[-1]

        return kept

    return dry_run.instead(keep)


def _driver_blocks(kernel) -> int:
    """Blocks an SM that the CUDA driver itself would hold of a compiled kernel."""
    driver, blocks = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    threads = kernel.metadata.num_warps * 32
    asked = (ctypes.byref(blocks), ctypes.c_void_p(kernel.function), threads, ctypes.c_size_t(kernel.metadata.shared))
    status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(*asked)
    return blocks.value if status == 0 else -1


def collect(jobs: Iterable[Job], keep: Callable[[list[dict]], object] = lambda records: None) -> list[dict]:
    """One plain record a job: the case, its options, seconds (median and all), resources, driver_blocks, trouble.

    Every job is timed in PASSES passes over all of them, each in another order, so that a minute in which the GPU ran
    slow does not fall on one case. ``keep`` gets the records after each pass.
    """
    jobs, prepared = list(jobs), []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(COMPILERS, mp_context=context) as pool:
        for ready in pool.map(_prepare, jobs):
            prepared.append(ready)
            print(f"compiled {len(prepared)} of {len(jobs)}", ready[2], flush=True)
    records = []
    for (case, options), (rows, blocks, trouble) in zip(jobs, prepared, strict=True):
        record = {"case": asdict(case), "options": options, "resources": [asdict(row) for row in rows]}
        records.append(record | {"driver_blocks": blocks, "trouble": trouble, "all_seconds": []})
    _settle()
    for turn in range(PASSES):
        order = [number for number, record in enumerate(records) if not record["trouble"]]
        random.Random(turn).shuffle(order)
        for number in order:
            case, options = jobs[number]
            tensors = buffers(case, "cuda")
            with dry_run.with_options(**options):
                once = call(case, _solution(case.kernel), tensors)
                records[number]["all_seconds"] += measure(once, GPU(tensors), rounds=ROUNDS, seed=turn * ROUNDS)
                records[number]["seconds"] = statistics.median(records[number]["all_seconds"])
        keep(records)
        print(f"timed {turn + 1} of {PASSES} times", flush=True)
    return records


def _settle() -> None:
    """Waits until the compilers have left the GPU, then brings its clocks up."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    gpu, until = GPU({}), time.monotonic() + 20
    while gpu.busy() and time.monotonic() < until:
        time.sleep(0.2)
    for _ in range(500):
        x @ x
    torch.cuda.synchronize()
