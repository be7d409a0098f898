"""Class feedback tells resources and predicted time too: the sandboxed compiler's answer is read for both."""

from dataclasses import replace

import pytest

from flashkit import exercises
from flashkit.exercises import lab_cells
from flashkit.grading import settings
from flashkit.grading.judge import Examiner
from flashkit.grading.room import CodeCell
from tests.classroom.classroom import ROOT

LAB = lab_cells.graded_cells(ROOT / "solutions/00_start_here/00_start_here.ipynb")


@pytest.mark.classroom
def test_feedback_has_both_lines():
    answers = [CodeCell(name, LAB[name]) for name in ("imports", "kernel-00-add")]
    chosen = replace(settings.load(ROOT), seconds_per_cell=120.0)
    with Examiner(answers, chosen, b"class") as examiner:
        report = examiner.examine(exercises.get("00.add"), len(answers))().report
    assert report.verdict == "right" and report.parts["compiles"]
    for text in (str(report), report._repr_html_()):
        assert "Compiles for sm_90; predicted: add_kernel" in text and "Predicted time on an H200, not measured" in text
