"""Launches a CUDA C++ text on the GPU, in a child with a deadline: what it gave for each case, and its time.

A launch is plain data: ``values`` (rows, columns) of x, ``gap`` elements between rows in memory, ``grid`` and
``threads``. The kernel is called as ``kernel(x, y, columns, stride_x, stride_y)``, with one y like x.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flashkit.instruments.cuda_gate import CHILD, request

SECONDS = 60
HANGS = "It had not ended after half a minute: is there a loop or a barrier that never ends?"


@dataclass(frozen=True)
class CudaRun:
    """outputs and outside (was anything around y written?) by launch; times in seconds; or ``trouble``, a sentence."""

    outputs: tuple[np.ndarray, ...] = ()
    outside: tuple[bool, ...] = ()
    seconds: float = 0.0
    copy_seconds: float = 0.0
    trouble: str = field(default="")


def plain_child(folder: Path) -> list[str]:
    """How the child is started; grading, which does not trust the text, starts it in a sandbox."""
    return [sys.executable, "-I", str(CHILD), str(folder)]


def run(
    text: str,
    kernel: str,
    launches: Sequence[Mapping[str, Any]],
    timed: Mapping[str, Any],
    child: Callable[[Path], list[str]] = plain_child,
) -> CudaRun:
    """Compiles ``text`` for this machine's GPU and runs the launches, then the timed one. Never raises."""
    with tempfile.TemporaryDirectory(prefix="flashkit-cuda-") as name:
        folder = Path(name)
        plain = [{key: value for key, value in launch.items() if key != "values"} for launch in launches]
        np.savez(folder / "tensors.npz", **{str(n): launch["values"] for n, launch in enumerate(launches)})
        (folder / "module.py").write_text(text)
        told = {**request(kernel, "90a"), "launches": plain, "timed": dict(timed)}
        (folder / "request.json").write_text(json.dumps(told))
        try:
            done = subprocess.run(child(folder), capture_output=True, timeout=SECONDS, env=_environment(name))
            answer = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            return CudaRun(trouble=HANGS)
        except ValueError:
            ended = -done.returncode in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL)
            return CudaRun(trouble=HANGS if ended else "The process that ran it on the GPU died.")
        if not answer["ok"]:
            return CudaRun(trouble=f"On the GPU it failed: {answer['message']}")
        outputs = np.load(folder / "outputs.npz")
        arrays = tuple(outputs[str(n)] for n in range(len(launches)))
        return CudaRun(arrays, tuple(answer["outside"]), answer["seconds"], answer["copy_seconds"])


def _environment(folder: str) -> dict[str, str]:
    names = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")
    return {**{k: v for k in names if (v := os.environ.get(k))}, "HOME": folder, "TMPDIR": folder}
