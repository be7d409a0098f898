"""02.cuda without a GPU: compiling alone earns a fifth, the rest is pending; what is wrong before that is said."""

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import check, check_time
from flashkit.exercises import lab_cells
from tests.labs.kernels import base_source

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU judges the answers too: tests/gpu")

NAME = "online_row_softmax_cuda"


def checked(*patch):
    text = base_source("02.cuda", "solution")
    for old, new in patch:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return check("02.cuda", lab_cells.load(text, NAME), show=False)


def test_compiling_earns_a_fifth_and_the_answers_are_pending():
    report, exercise = checked(), exercises.get("02.cuda")
    assert (report.verdict, report.points) == ("not judged", exercise.points)
    assert exercise.points / (exercise.points + exercise.gpu_points) == pytest.approx(0.2)
    assert report.pending == ["answers and time (02.cuda.gpu)"]
    text = str(report)
    assert "only judged on a GPU" in text and "Compiles for sm_90a" in text and "Compiles for sm_80" in text
    assert "registers" in text and "B spilled" in text and "passed" not in text


def test_its_gpu_cell_is_pending_not_lost():
    told = check_time("02.cuda", lab_cells.load(base_source("02.cuda", "solution"), NAME))
    assert told.points == 0 and told.pending and "16 points are pending" in str(told)


@pytest.mark.parametrize(
    ("patch", "verdict", "said"),
    [
        (("merge(m, l, m_b, l_b);", "merg(m, l, m_b, l_b);"), "will not compile", "`merg` is not known here"),
        (("float l_b = __shfl", "float l_b __shfl"), "will not compile", "expected"),
        (("return SOURCE, 256", "return SOURCE, 100"), "wrong", "whole warps of 32"),
        (("return SOURCE, 256", "return SOURCE"), "wrong", "Expected 2 output(s) (source, threads)"),
        (("return SOURCE, 256", "return SOURCE.encode(), 256"), "wrong", "ource must be a text"),
        (("return SOURCE, 256", "return threads"), "crashed", "threads"),
        (("    float m_new = fmaxf(m, m_b);", "    raise NotImplementedError()"), "crashed", "not filled in yet"),
    ],
)
def test_what_is_wrong_is_said_and_earns_nothing(patch, verdict, said):
    report = checked(patch)
    assert (report.verdict, report.points) == (verdict, 0.0)
    assert said in str(report)


def test_the_students_own_line_is_shown():
    report = checked(("l = l * expf(m - m_new)", "l = l * exqf(m - m_new)"))
    assert "exqf(m - m_new)" in report.student_line().line
