"""Where results are written, and what each of them says of the machine that it was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch
import triton

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS", Path(__file__).parent / "results"))


def need_gpu() -> None:
    """Ends the command with one line where PyTorch has no GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU here, so nothing was run: this command measures on one.")


def need_hopper() -> None:
    """Ends the command with one line on any other GPU, too: what was not run is no success."""
    need_gpu()
    if torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("This GPU is no Hopper (H100, H200), so nothing was run: these kernels use its instructions.")


def provenance() -> dict:
    """GPU, driver, versions, commit and date.

    On a GPU machine that has a copy of the tree the variable COMMIT says what it is a copy of.
    """
    need_gpu()
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        **versions(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    """Of what compiles and runs."""
    return {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}


def commit() -> str:
    """COMMIT where it is set, since a copy of the tree may have another history or none; else git's; else ""."""
    return os.environ.get("COMMIT") or _said("git", "rev-parse", "HEAD")


def _said(*command: str) -> str:
    """What a program says; "" when it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
