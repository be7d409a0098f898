"""A child of a check on a GPU machine: ``python -m flashkit.check.child HOW ID MODULE NAME ANSWER ARCH GPU``.

HOW is ``interpreted``, ``compiled`` or ``timed``. ARCH and GPU are the parent's: the interpreted child sees no GPU.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from flashkit.check import check, find
from flashkit.check.choice_timing import time_choice
from flashkit.check.compare import judge
from flashkit.check.cost import Target
from flashkit.check.large_call import buffers, call_of, course_kernel, disagreement, on_this_gpu
from flashkit.check.timing import DTYPES, ELSEWHERE, floor_of, race
from flashkit.runtime.compiled import run_compiled

ROUNDS = 7  # of a time that is told, not graded


def main(how: str, id: str, module: str, name: str, answer: str, arch: str, gpu: str) -> None:
    spec = importlib.util.spec_from_file_location("answer", module)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["answer"] = loaded
    spec.loader.exec_module(loaded)
    judged = {"interpreted": interpreted, "compiled": compiled, "timed": timed}[how]
    Path(answer).write_text(json.dumps(judged(id, getattr(loaded, name), Target(int(arch), gpu))))


def interpreted(id: str, function, target: Target) -> dict:
    """The fields of a :class:`flashkit.check.gpu_machine.ChildReport`, from a check in the interpreter."""
    report = check(id, function, target=target)
    return {
        "verdict": report.verdict,
        "mistake": report.mistake,
        "points": report.points,
        "out_of": report.out_of,
        "pending": report.pending,
        "text": str(report),
        "html": report._repr_html_(),
        "predicted": report.cost.seconds if report.cost else None,
    }


def compiled(id: str, function, target: Target) -> dict:
    """Whether the compiled kernel answers every public case that fits this GPU: no huge strides, its own choice."""
    exercise = find(id)
    cases = [case for case in exercise.cases if case.layout != "huge"]
    cases = [case for case in cases if case.options.get("arch", target.arch) == target.arch]
    for case in cases:
        outcome, truth = run_compiled(function, exercise.call(case)), judge(exercise, case)
        if outcome.problem is not None:
            return {"right": False, "sentence": f"{outcome.problem.sentence} (case: {case.why})"}
        difference = truth.of(outcome.outputs).worst(outcome.outputs)  # what only the meter sees, it saw interpreted
        if difference is not None:
            told = f"right in the interpreter, wrong compiled: {difference.sentence()} (case: {case.why})"
            return {"right": False, "sentence": told}
    told = {"right": True, "sentence": f"compiled and right on {len(cases)} of {len(exercise.cases)} public cases."}
    return told | ({"measured": measured(exercise, function, target)} if exercise.timed else {})


def measured(exercise, function, target: Target) -> float:
    """Seconds of the large call whose time the check predicts: of the case whose kernel it compiles."""
    from flashkit.instruments.gpu_clock import GPU
    from flashkit.instruments.timing import measure

    case = exercise.timed.like(min(exercise.cases, key=lambda case: case.dtype != "fp16"))
    case = on_this_gpu(case, target.arch)
    tensors = buffers(exercise, case)
    with GPU(tensors).alone() as gpu:
        return median(measure(call_of(exercise, function, case, tensors), gpu, rounds=ROUNDS))


def timed(id: str, function, target: Target) -> dict:
    """The GPU's grade cell: answers beside the course's kernel in both half precisions, before and after the timer."""
    from flashkit.instruments.gpu_clock import GPU

    exercise = find(id)
    if exercise.gpu is None:
        return {"why": ELSEWHERE}
    course, case = course_kernel(exercise), on_this_gpu(exercise.gpu.case, target.arch)
    if course is None:
        return {"why": "this copy of the course has no solutions/ to compare it with"}
    for dtype in reversed(DTYPES):  # fp16 last: its buffers are the timer's
        case = replace(case, dtype=dtype)
        tensors = buffers(exercise, case)
        gpu = GPU(tensors)
        gpu.refresh(1)
        if wrong := disagreement(exercise, function, course, case, tensors):
            return {"told": wrong.rstrip(".")}
    kernel, own = (call_of(exercise, f, case, tensors) for f in (function, course))
    peers = {name: call_of(exercise, peer, case, tensors) for name, peer in exercise.gpu.peers.items()}
    grid = exercise.tuning.candidates if exercise.tuning else ()
    others = {c: call_of(exercise, partial(function, choice=c), case, tensors) for c in grid}
    floor = floor_of(exercise, case, target.machine)
    with gpu.alone():
        if others:
            report = time_choice(exercise, kernel, others, gpu, floor)
        else:
            report = race(exercise, kernel, own, peers, gpu, floor)
    gpu.refresh(2)
    if wrong := disagreement(exercise, function, course, case, tensors):
        return {"told": f"after it was timed: {wrong.rstrip('.')}"}
    return {"points": report.points, "told": report.told, "why": report.why}


if __name__ == "__main__":
    main(*sys.argv[1:])
