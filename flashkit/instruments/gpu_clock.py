"""The timer's real device: CUDA events on the current GPU, an emptied L2, and what nvidia-smi says of its state."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

FLUSH = 256 * 2**20  # bytes, at least; and at least twice the L2
ASKED = ("name", "uuid", "driver_version", "clocks.sm", "clocks.max.sm", "temperature.gpu", "power.draw")


class GPU:
    """The current CUDA device. ``tensors`` are the buffers that every round fills with new normal values.

    scale   name -> standard deviation, where it is not 1
    Use ``with gpu.alone():`` around timings, so that two of the course's own runs never share a GPU.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], scale: Mapping[str, float] | None = None):
        self.tensors, self.scale = dict(tensors), dict(scale or {})
        l2 = torch.cuda.get_device_properties().L2_cache_size
        self._flush = torch.empty(max(FLUSH, 2 * l2) // 4, dtype=torch.int32, device="cuda")

    def refresh(self, seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        for name, tensor in self.tensors.items():
            if tensor.is_floating_point():
                tensor.normal_(0.0, self.scale.get(name, 1.0), generator=generator)

    def run(self, call) -> tuple[float, float]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        torch.cuda.synchronize()
        started = time.perf_counter()
        self._flush.fill_(1)  # while it runs the host launches the call; only a launch that takes longer counts
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3, time.perf_counter() - started

    def state(self) -> dict[str, Any]:
        values = _ask(f"--query-gpu={','.join(ASKED)}")
        throttled = _ask("--query-gpu=clocks_throttle_reasons.active") or [""]
        return {**dict(zip(ASKED, values, strict=False)), "throttle_reasons": throttled[0], "others": self._others()}

    def busy(self) -> str:
        others = self._others()
        return f"other processes use this GPU ({', '.join(others)})" if others else ""

    def _others(self) -> list[str]:
        """Process ids that this machine knows and that are not ours: a container sees its own under another number."""
        ours, said = _waiting(), [pid for pid in _ask("--query-compute-apps=pid") if pid.isdigit()]
        return [pid for pid in said if int(pid) not in ours and os.path.exists(f"/proc/{pid}")]

    @contextmanager
    def alone(self):
        """Waits until no other run of the course times on this GPU."""
        uuid = str(torch.cuda.get_device_properties().uuid)
        with open(Path(tempfile.gettempdir()) / f"flashkit-gpu-{uuid}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self


def _waiting() -> set[int]:
    """This process and its ancestors: a notebook that asked for a timing may hold the GPU, but only waits for it."""
    found, pid = set(), os.getpid()
    while pid:
        found.add(pid)
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            break
        pid = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)
    return found


def _ask(question: str) -> list[str]:
    """nvidia-smi's answer for the current device, field by field; [] when it gives none."""
    command = ["nvidia-smi", f"--id={torch.cuda.current_device()}", question, "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [field.strip() for line in said.splitlines() for field in line.split(",")]
