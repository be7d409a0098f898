"""Runs every benchmark on this GPU machine: ``python -m benchmarks [NAME ...]``; results go to benchmarks/results/."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {  # module: what it records
    "benchmarks.prediction": "predicted against measured time, the tile sweep, the timer's control",
}


def main(*names: str) -> int:
    """Runs the named benchmarks, else all; the exit status is that of the worst."""
    wanted = [f"benchmarks.{name}" for name in names] or list(BENCHMARKS)
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
