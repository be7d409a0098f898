"""Grades one submission: every check judged, one result. The same input gives the same result, from its file.

But for what could not be tried, such as a compilation on a full disk: another run tries it again.
"""

from __future__ import annotations

import hashlib
import html
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flashkit.exercises import EXERCISES
from flashkit.grading import results, sandbox, seeds
from flashkit.grading.judge import Examiner, Judged
from flashkit.grading.sanitise import Submission, exercise_id
from flashkit.grading.settings import Settings

GPU_SUFFIX = ".gpu"


def grade(submission: Submission, settings: Settings, folder: Path) -> dict[str, Any]:
    """Runs and judges a submission: the result, ready for JSON. ``folder`` is the class's, which holds its seed."""
    began, master = time.monotonic(), seeds.master_seed(folder)
    cells: dict[str, Any] = {}
    teacher: dict[str, Any] = {}
    with Examiner(submission.code, settings, master) as examiner:
        for grade_id, upto in submission.upto.items():
            exercise = EXERCISES.get(exercise_id(grade_id))
            if exercise is None:
                cells[grade_id] = _unjudged(grade_id, settings)
                continue
            cells[grade_id] = examiner.examine(exercise, upto)
        for grade_id, judged in cells.items():
            if callable(judged):
                done = judged()
                cells[grade_id], teacher[grade_id] = _graded(done), _record(done)
        room = examiner.room
    seconds = {"total": time.monotonic() - began, "starts": room.started, "starting": room.start_seconds}
    return {
        "schema": results.SCHEMA,
        "key": key(submission, settings, master),
        "input_sha256": submission.sha256,
        "sandbox": "bubblewrap" if sandbox.available() else "none: see the warning",
        "versions": versions(),
        "notes": submission.notes,
        "cells": cells,
        "code": {str(submission.at[n]): problem.sentence for n, problem in room.problems.items()},
        "teacher": {"seeds": teacher, "seconds": seconds},
    }


def _graded(judged: Judged) -> dict[str, Any]:
    report = judged.report
    return {
        "verdict": report.verdict,
        "mistake": report.mistake,
        "share": results.clamped(report.points / report.out_of),
        "points": results.clamped(report.points, report.out_of),
        "out_of": float(report.out_of),
        "pending": results.clamped(judged.pending, report.out_of),
        "text": str(report),
        "html": report._repr_html_(),
    }


def _unjudged(grade_id: str, settings: Settings) -> dict[str, Any]:
    """A cell that is not judged here: pending, unless it is a GPU's and the class does without one."""
    id = exercise_id(grade_id)
    exercise = EXERCISES.get(id.removesuffix(GPU_SUFFIX))
    worth = float(exercise.gpu_points if exercise and id.endswith(GPU_SUFFIX) else exercise.points if exercise else 0)
    gpu = settings.gpu if id.endswith(GPU_SUFFIX) else ""
    said = {
        "required": f"{id} is judged on a GPU only. Its {worth:g} points are pending.",
        "bonus": f"{id} is judged on a GPU only. Its {worth:g} points are a bonus on top of the full mark.",
        "off": f"{id} is judged on a GPU only, which this class does without. It does not count.",
        "": f"{id} is not judged by this grader yet. Its {worth:g} points are pending: grade it by hand.",
    }[gpu]
    text = f"? {said}"
    return {
        "verdict": "not judged",
        "mistake": "",
        "share": None if gpu != "off" else 0.0,
        "points": None if gpu != "off" else 0.0,
        "out_of": worth,
        "pending": worth if gpu != "off" else 0.0,
        "text": text,
        "html": f'<div class="flashkit-report" role="group" aria-label="Result of {html.escape(id)}" '
        f'style="border-left:6px solid #555555;background:#ffffff;color:#1a1a1a;padding:.6em 1em;'
        f'font-family:sans-serif">{html.escape(text)}</div>',
    }


def _record(judged: Judged) -> dict[str, Any]:
    """For the teacher alone: the seeds repeat the secret cases."""
    return {"draws": judged.seeds, "seconds": judged.seconds, "student_seconds": judged.student_seconds}


def cell_points(grade_id: str, gpu: str) -> float:
    """What the release writes as a grade cell's points: those of GPU cells count only where a GPU is required."""
    id = exercise_id(grade_id)
    exercise = EXERCISES[id.removesuffix(GPU_SUFFIX)]
    worth = float(exercise.gpu_points if id.endswith(GPU_SUFFIX) else exercise.points)
    return 0.0 if id.endswith(GPU_SUFFIX) and gpu != "required" else worth


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("torch", "triton", "numpy")}}


def key(submission: Submission, settings: Settings, master: bytes) -> str:
    """Two runs with one key give one result: what was handed in and run, the settings, the seed and our versions."""
    code = [[cell.name, cell.source] for cell in submission.code]
    said = [
        results.SCHEMA,
        submission.sha256,
        code,
        submission.upto,
        seeds.fingerprint(master),
        repr(settings),
        versions(),
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _untried(result: dict[str, Any]) -> bool:
    """Does it wait for what this machine could judge? Once a GPU has filled it, its points are not thrown away."""
    waiting = (cell["pending"] and cell["share"] is not None for cell in result["cells"].values())
    return "gpu" not in result["teacher"] and any(waiting)


def graded(submission: Submission, settings: Settings, folder: Path, path: Path) -> dict[str, Any]:
    """The result in ``path`` if it is of this very submission; else a new one, written there.

    What a compiler had no time or room for is tried again.
    """
    known = results.read(path)
    if known and known["key"] == key(submission, settings, seeds.master_seed(folder)) and not _untried(known):
        return known
    result = grade(submission, settings, folder)
    results.write(path, result)
    return result
