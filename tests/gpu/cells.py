"""The grade cells ``.gpu`` of the solutions: ``python -m tests.gpu.cells [RESULT.json [ID ...]]``; all without an ID.

Each is asked as a learner's notebook asks, check_time(ID, function), in a child of its own, one after the other since a
timer wants the GPU for itself. The record is written after each. Exit status 1 when a solution earns less than all
points; a cell that was not judged says why.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import flashkit  # noqa: F401  first, as in every notebook
from benchmarks import children
from flashkit import exercises
from flashkit.check import check_time
from tests.labs.kernels import load

SECONDS = 600  # for a cell: it is interpreted, compiled and timed, each in a process with its own deadline


def cells() -> list[str]:
    return [id for id, exercise in exercises.EXERCISES.items() if exercise.gpu_points]


def one(id: str) -> dict:
    started = time.perf_counter()
    report = check_time(id, load(id, "solution"))
    told = {"points": report.points, "out_of": report.out_of, "pending": report.pending, "report": str(report)}
    return {**told, "seconds": round(time.perf_counter() - started, 1)}


def main(path: str = "benchmarks/results/cells.json", *ids: str) -> int:
    from benchmarks.records import provenance

    record: dict = {"what": "check_time() of the course's own kernels", **provenance(), "cells": []}

    def told(found: dict) -> None:
        record["cells"].append(found)
        Path(path).write_text(json.dumps(record, indent=1) + "\n")
        print(found.get("report", f"{found['case']}: {found.get('ended')}"), found.get("seconds", ""), flush=True)

    children.run("tests.gpu.cells", [[id] for id in ids or cells()], SECONDS, told)
    return int(not all(found.get("points") == found.get("out_of") for found in record["cells"]))


if __name__ == "__main__":
    sys.exit(children.start(main, one))
