"""Judges what only a GPU can judge of a graded submission, on a machine that has one, and fills it into the result.

Only pending ``-gpu`` cells are judged; everything else stays as it is. An answer that was not found right before, from
outside, earns nothing here. A CUDA C++ text is proved right here, also on secret cases. A Triton kernel's time is the
word of a process that the student's code runs in: see CLASSROOM.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashkit.check import cuda, gluon
from flashkit.check.cost import Target, here
from flashkit.check.timing import TimeReport
from flashkit.exercises import EXERCISES
from flashkit.exercises.contract import Exercise
from flashkit.grading import gpu_sandbox, results, seeds
from flashkit.grading.grade import versions
from flashkit.grading.judge import DRAWS
from flashkit.grading.room import Room
from flashkit.grading.sanitise import Submission, exercise_id
from flashkit.grading.settings import Settings
from flashkit.instruments.cuda_gate import CHILD as CUDA_CHILD
from flashkit.runtime.wire import writable

SUFFIX = "-gpu"
SECONDS = 300.0  # for one kernel: start, compiler, all cases, the timer's rounds
TEXT_LIMIT = 1000
ANSWER_LIMIT = 2**16  # bytes of a child's answer that are read


def fill(submission: Submission, settings: Settings, folder: Path, path: Path) -> dict[str, Any]:
    """The result in ``path`` with its pending GPU cells judged, written there. Raises ValueError, in one line."""
    result, target = results.read(path), here()
    if not target.gpu:
        raise ValueError("--gpu-only needs a GPU, Ampere or later, and a torch that sees it.")
    if result is None or result["input_sha256"] != submission.sha256:
        raise ValueError(f"{path} is no result of this submission: grade it first, without --gpu-only.")
    for grade_id in pending(result):
        exercise = EXERCISES[exercise_id(grade_id.removesuffix(SUFFIX))]
        before = result["cells"].get(grade_id.removesuffix(SUFFIX))
        if not _may_be_right(exercise, before):
            verdict = before["verdict"] if before else "missing"
            report = TimeReport(exercise, told=f"{exercise.id} is {verdict}, and only what is right is timed")
        elif exercise.gluon and not gluon.runs_on(target):
            report = TimeReport(exercise, why=gluon.ELSEWHERE)
        elif exercise.cuda is None and exercise.gpu is None:
            report = TimeReport(exercise)
        else:
            judge = _cuda if exercise.cuda else _kernel
            report = judge(exercise, submission, settings, folder, target)
        result["cells"][grade_id] |= _cell(report)
    result["teacher"]["gpu"] = {"name": target.gpu, "arch": target.arch, "versions": versions()}
    results.write(path, result)
    return result


def pending(result: Mapping[str, Any]) -> list[str]:
    """Cells that wait for a GPU."""
    return [name for name, cell in result["cells"].items() if name.endswith(SUFFIX) and cell["pending"]]


def _may_be_right(exercise: Exercise, cell: Mapping[str, Any] | None) -> bool:
    """Found right from outside; for what only a GPU can run, not found wrong."""
    only_here = exercise.cuda is not None or exercise.gluon
    return cell is not None and cell["verdict"] == ("not judged" if only_here else "right")


def _cell(report: TimeReport) -> dict[str, Any]:
    said = {"text": str(report), "html": report._repr_html_()}
    if report.pending:  # the timer did not trust itself: no grade, and not a lower one
        return said
    points = results.clamped(report.points, report.out_of)
    judged = {"verdict": "right" if points else "wrong", "share": points / report.out_of, "points": points}
    return {**judged, "pending": 0.0, **said}


# ---- a Triton or Gluon kernel ---------------------------------------------------------------------------


def _kernel(exercise: Exercise, submission: Submission, settings: Settings, root: Path, target: Target) -> TimeReport:
    with tempfile.TemporaryDirectory(prefix="grading-gpu-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        cells = submission.code[: submission.upto[exercise.id.replace(".", "-")]]
        request = {
            "id": exercise.id,
            "function": exercise.function,
            "cells": [[cell.name, cell.source] for cell in cells],
            "seconds": settings.seconds_per_cell,
            "arch": target.arch,
            "gpu": target.gpu,
        }
        (folder / "request.json").write_text(json.dumps(request))
        inside = [sys.executable, "-m", "flashkit.grading.gpu_child", name]
        reason = gpu_sandbox.run(inside, folder, root, settings.limits, SECONDS)
        if reason:
            return TimeReport(exercise, told=f"on the GPU it was ended: {reason.rstrip('.')}")
        return _read(exercise, folder / "answer.json")


def _read(exercise: Exercise, path: Path) -> TimeReport:
    """What a child claims, or that it gave no answer."""
    try:
        answer = json.loads(_plain_text(path))
        told, why = (writable(str(answer.get(name) or "")[:TEXT_LIMIT]) for name in ("told", "why"))
        return TimeReport(exercise, results.clamped(answer.get("points", 0.0), exercise.gpu_points), told, why)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return TimeReport(exercise, why="the process that ran it on the GPU gave no answer")


def _plain_text(path: Path) -> str:
    """The start of a file that student code may have replaced by a link, or by a pipe that nobody writes to."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no plain file")
        return file.read(ANSWER_LIMIT).decode(errors="replace")


# ---- CUDA C++ -------------------------------------------------------------------------------------------


def _cuda(exercise: Exercise, submission: Submission, settings: Settings, root: Path, target: Target) -> TimeReport:
    """The text comes out of the student's sandbox; on the GPU nothing runs but its kernel, in a sandbox too."""
    if not importlib.util.find_spec("cuda.core"):
        return TimeReport(exercise, why="cuda-core is not installed here")
    room = Room(submission.code, settings)
    try:
        child = room.enter(submission.upto[exercise.id.replace(".", "-")], exercise.function)
        child.ask(exercise.call(exercise.cases[0]))
        outcome = child.answer()
        room.leave(child)
    finally:
        room.close()
    if outcome.problem:
        return TimeReport(exercise, told=outcome.problem.sentence.rstrip("."))
    master = seeds.master_seed(root)
    drawn = [case for n in range(DRAWS) for case in exercise.draw(seeds.case_seed(master, exercise.id, n))]

    def inside(folder: Path) -> list[str]:
        return gpu_sandbox.command([sys.executable, "-I", str(CUDA_CHILD), str(folder)], folder, root)

    threads, text = int(outcome.outputs["threads"]), outcome.texts["source"]
    observations, done = cuda.launched(exercise, text, threads, [*exercise.cases, *drawn], inside)
    return cuda.time_report(exercise, observations, done)
