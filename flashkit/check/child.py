"""A child of a check on a GPU machine: ``python -m flashkit.check.child HOW ID MODULE NAME ANSWER``.

HOW is ``interpreted`` or ``compiled``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from flashkit.check import check, find
from flashkit.check.compare import judge
from flashkit.runtime.compiled import run_compiled


def main(how: str, id: str, module: str, name: str, answer: str) -> None:
    spec = importlib.util.spec_from_file_location("answer", module)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["answer"] = loaded
    spec.loader.exec_module(loaded)
    function = getattr(loaded, name)
    Path(answer).write_text(json.dumps((interpreted if how == "interpreted" else compiled)(id, function)))


def interpreted(id: str, function) -> dict:
    report = check(id, function)
    return {
        "verdict": report.verdict,
        "mistake": report.mistake,
        "points": report.points,
        "out_of": report.out_of,
        "pending": report.pending,
        "text": str(report),
        "html": report._repr_html_(),
    }


def compiled(id: str, function) -> dict:
    """Whether the compiled kernel answers every public case that fits a GPU's memory (huge strides do not)."""
    exercise = find(id)
    cases = [case for case in exercise.cases if case.layout != "huge"]
    for case in cases:
        outcome, truth = run_compiled(function, exercise.call(case)), judge(exercise, case)
        if outcome.problem is not None:
            return {"right": False, "sentence": f"{outcome.problem.sentence} (case: {case.why})"}
        difference = truth.of(outcome.outputs).worst(outcome.outputs)  # no meter there, so no schedule
        if difference is not None:
            told = f"right in the interpreter, wrong compiled: {difference.sentence()} (case: {case.why})"
            return {"right": False, "sentence": told}
    return {"right": True, "sentence": f"compiled and right on {len(cases)} of {len(exercise.cases)} public cases."}


if __name__ == "__main__":
    main(*sys.argv[1:])
