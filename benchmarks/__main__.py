"""Runs benchmarks by name: ``python -m benchmarks [NAME ...]``; results go to benchmarks/results/.

Without a name, all that need this GPU machine.
"""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {  # module: what it records
    "benchmarks.prediction": "predicted against measured time, the tile sweep, the timer's control",
    "benchmarks.forward": "lab 07's forward kernels beside FlashAttention-3, cuDNN and flash2; the ladder",
    "benchmarks.backward": "the teaching backward beside cuDNN's and flash2's",
    "benchmarks.confirmation": "predicted against measured on a grid that was fixed before it was measured",
    "benchmarks.overlap_order": "where the compiler puts the wait of the overlapped Gluon kernel; no GPU",
    "benchmarks.tiles": "registers, occupancy and predicted time, six architectures by four tiles; no GPU",
}
ANYWHERE = ("benchmarks.overlap_order", "benchmarks.tiles")


def main(*names: str) -> int:
    """Runs the named benchmarks, else all that need a GPU; the exit status is that of the worst."""
    wanted = [f"benchmarks.{name}" for name in names] or [name for name in BENCHMARKS if name not in ANYWHERE]
    status = 0
    for name in wanted:
        if name not in BENCHMARKS:
            print(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
            return 2
        print(f"{name}: {BENCHMARKS[name]}", flush=True)
        status = max(status, importlib.import_module(name).main())
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
