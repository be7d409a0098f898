"""check() itself: whatever a student hands in gets one clear sentence, and no points that were not earned."""

import resource
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from flashkit import exercises
from flashkit.check import check, conclude, hint, observe
from flashkit.runtime.capture import LIMIT
from flashkit.runtime.runner import run
from tests.check import students
from tests.labs.kernels import load


def judged(function, id="00.add", seconds=20.0):
    """check() without the compilation, and with a time limit of the test's own."""
    exercise = replace(exercises.get(id), seconds=seconds)
    observations, _ = observe(exercise, function, exercise.cases, compile=False)
    return conclude(exercise, observations, [], lambda case, **o: run(function, exercise.call(case), show=False, **o))


@pytest.mark.parametrize(
    ("function", "verdict", "said"),
    [
        (students.raises, "crashed", "my own mistake"),
        (students.typo, "crashed", "z"),
        (students.exits, "crashed", "exit()"),
        (students.quits, "crashed", "exit()"),
        (students.deep, "crashed", "calls itself without end"),
        (students.shape, "wrong", "must have shape (128,), but it has (128, 1)"),
        (students.dtype, "wrong", "must be fp32, but it is float16"),
        (students.device, "wrong", "must be on the inputs' device"),
        (students.nothing, "wrong", "returned nothing"),
        (students.two, "wrong", "Expected 1 output"),
        (students.array, "wrong", "must be a torch.Tensor, but it is a ndarray"),
        (students.number, "wrong", "must be a torch.Tensor, but it is a float"),
        (students.subclass, "wrong", "must be a torch.Tensor, but it is a Parameter"),
        (students.nan, "wrong", ""),
        (students.view, "refused", "view of the input x"),
        (students.clone, "wrong", ""),
        (students.torch_add, "refused", "PyTorch's add"),
        (students.torch_add_after, "refused", "PyTorch's add"),
        (students.laundered, "refused", "PyTorch's add"),
        (students.oracle_inside, "refused", "the course's oracle"),
        (students.exercises_inside, "refused", "the course's oracle"),
        (students.swallows, "crashed", "stores to"),
        (students.modifies, "wrong", "changes its input x"),
        (students.modifies_by_torch, "wrong", "changes its input x"),
        (students.far, "crashed", "stores to"),
        (students.unwritten, "wrong", "no kernel stored to out[0]"),
        (students.from_numpy, "wrong", ""),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_one_clear_sentence_and_no_points(function, verdict, said):
    report = judged(function)
    assert report.verdict == verdict, str(report)
    assert said in str(report.problem.sentence if report.problem else report), str(report)
    if report.problem:
        assert report.problem.sentence.count("\n") == 0 and len(report.problem.sentence) < 240
    assert report.points == 0


def test_the_right_function_is_right():
    report = judged(students.right)
    assert (report.verdict, report.mistake) == ("right", "")
    assert report.points == pytest.approx(0.85 * report.out_of)  # compilation was not asked for


@pytest.mark.parametrize("function", [students.hangs, students.hangs_and_catches, students.endless])
def test_an_endless_loop_ends(function):
    report = judged(function, seconds=0.5)
    assert report.verdict == "crashed" and "had not ended after 0.5 s" in report.problem.sentence, str(report)
    assert report.points == 0


def test_the_time_limit_is_the_exercises():
    exercise = replace(exercises.get("03.heads"), seconds=3.0)
    assert exercise.call(exercise.cases[0]).seconds == 3.0
    assert replace(exercise, seconds=4.0).call(exercise.cases[0]).seconds == 4.0


def test_printing_100_MB_is_cut(capsys):
    exercise = exercises.get("00.add")
    outcome = run(students.prints, exercise.call(exercise.cases[0]))
    assert outcome.problem is None
    assert len(outcome.printed) < LIMIT + 100 and "output cut" in outcome.printed
    assert len(capsys.readouterr().out) < LIMIT + 100


def test_what_an_earlier_call_computed_does_not_count():
    assert judged(students.cached).verdict == "right"  # each length for the first time
    report = judged(students.cached)
    assert report.verdict in ("refused", "wrong") and report.points == 0, str(report)


@pytest.mark.parametrize("function", [students.attention, students.matmul])
def test_pytorchs_attention_and_products_are_refused(function):
    report = judged(function, "03.tile")
    assert report.verdict == "refused" and "It calls PyTorch's" in report.problem.sentence, str(report)
    assert report.points == 0


def test_an_oracle_among_the_globals_is_refused():
    import reference.forward

    students.dense = reference.forward.dense
    try:
        function = eval("lambda x, y, block: dense(x, y, block)", students.__dict__)
        report = judged(function)
    finally:
        del students.dense
    assert report.verdict == "refused" and "the course's oracle" in report.problem.sentence


def test_a_kernel_that_no_gpu_takes_keeps_the_points_for_being_right():
    report = check("00.add", students.breaking, show=False)
    assert report.verdict == "will not compile", str(report)
    assert report.points == pytest.approx(0.7 * report.out_of)  # its loop also reads too many bytes
    assert "break" in report.compile_problem.sentence
    assert "`break`" in str(report) and "<code>break</code>" in report._repr_html_()


def test_an_empty_blank_is_told_once_and_does_not_run_here():
    text = str(check("00.add", students.blank, show=False))
    assert text.count("not filled in yet") == 1 and "It runs here" not in text


def test_what_is_no_function_and_what_is_no_exercise_are_one_line():
    with pytest.raises(TypeError, match="wants your function, but got int"):
        check("00.add", 3)
    with pytest.raises(ValueError, match="Did you mean '03.heads'"):
        check("03.head", students.right)
    with pytest.raises(ValueError, match="hints 1 to 3"):
        hint("03.heads", 4)


def test_a_report_can_be_read_as_text_and_as_html():
    report = judged(load("03.tile", "solution", ((" / l[:, None]", ""),)), "03.tile")
    for text in (str(report), report._repr_html_()):
        assert "never divided by the sum l" in text and "wrong" in text and "0 of 10 points" in text
    assert str(report).index("wrong") < str(report).index("never divided")


def processor_seconds():
    """Time that this process and its ended children, the compiler's, have had: a busy machine does not change it."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


SLOW_DOWN = ("l = alpha * l + tl.sum(P, 1)", "l = l + tl.sum(P, 1)")  # so that every variant must be tried


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def warmed_up():
    """What is imported on first use is not a check's time."""
    check("03.tile", load("03.tile", "solution"), show=False)


@pytest.mark.alone
@pytest.mark.parametrize("patch", [(), (SLOW_DOWN,)], ids=["right", "named"])
@pytest.mark.parametrize("id", ["03.heads", *map(slow, ("03.rows", "03.causal"))])
def test_an_answer_in_five_seconds(warmed_up, id, patch):
    function = load(id, "solution", patch)
    started = processor_seconds()
    report = check(id, function, show=False)
    assert processor_seconds() - started < 5
    assert (report.verdict, report.mistake) == (("wrong", "rescale-numerator-only") if patch else ("right", ""))


def test_a_store_far_outside_and_an_exit_leave_the_process_alive():
    code = (
        "import flashkit\n"
        "from flashkit.check import check\n"
        "from tests.check import students\n"
        "print(check('00.add', students.far, show=False).verdict)\n"
        "print(check('00.add', students.exits, show=False).verdict)\n"
        "print(check('00.add', students.right, show=False).verdict)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["crashed", "crashed", "right"]), done.stderr
