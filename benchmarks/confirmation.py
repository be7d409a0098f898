"""A blind check of the prediction: ``python -m benchmarks confirmation``, on the GPU machine.

The grid is BLIND of :mod:`benchmarks.cases`. Model and constants are those of the commit that runs; nothing is fitted
to what is measured here. The record is there, so a model that changes from now on has seen this grid: it needs another.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from benchmarks.cases import BLIND
from benchmarks.collect import collect
from benchmarks.records import RESULTS, need_gpu, provenance
from benchmarks.report import pair, summary
from flashkit.instruments.roofline import Constants

ROLE = "blind"


def record(measured: list[dict]) -> dict:
    """Pairs and summary of what was measured; what could not run is listed and counts as no pair."""
    pairs = [pair(r, ROLE) for r in measured if "seconds" in r]
    return {
        "what": "predicted and measured milliseconds on a grid fixed before it was measured; nothing is fitted here",
        "constants": asdict(Constants()),
        **summary(pairs, ROLE),
        "not_run": [{**r["case"], "trouble": r["trouble"]} for r in measured if r["trouble"]],
        "pairs": pairs,
    }


def main() -> int:
    need_gpu()
    RESULTS.mkdir(parents=True, exist_ok=True)
    raw = RESULTS / "confirmation-raw.json"
    keep = lambda records: raw.write_text(json.dumps(provenance() | {"blind": records}))  # noqa: E731
    measured = collect([(case, {}) for case in BLIND], keep)
    found = provenance() | record(measured)
    (RESULTS / "confirmation-h200.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: found[name] for name in ("held_out", "within_25_percent", "median_error", "not_run")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
