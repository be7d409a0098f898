"""check() where Triton compiles: two children. The compiled one needs a GPU, so here its answer is given."""

import numpy as np
import pytest

import flashkit  # noqa: F401  first: without a GPU it switches Triton's interpreter on
from flashkit import exercises
from flashkit.check import child, find, gpu_machine
from flashkit.check.cost import Target
from flashkit.runtime import compiled
from flashkit.runtime.placement import place
from tests.labs.kernels import load

RIGHT = load("03.tile", "solution")
LEFT = object()


@pytest.fixture
def gpu_says(monkeypatch):
    """Lets the interpreted child run for real and answers for the compiled one."""
    ask = gpu_machine._ask

    def install(told):
        monkeypatch.setattr(gpu_machine, "_ask", lambda how, *rest: told if how == "compiled" else ask(how, *rest))

    return install


def test_a_kernel_right_in_both_children_keeps_its_points(gpu_says):
    gpu_says({"right": True, "sentence": "compiled and right on 8 of 8 public cases."})
    report = gpu_machine.check_on_gpu("03.tile", RIGHT, 10.0, Target())
    assert (report.verdict, report.points, report.mistake) == ("right", 10.0, "")
    assert "compiled and right on 8 of 8" in str(report) and "compiled and right" in report._repr_html_()
    assert report.pending == ["time on a GPU"]


def test_a_kernel_that_only_the_interpreter_finds_right_gets_nothing(gpu_says):
    gpu_says(None)
    report = gpu_machine.check_on_gpu("03.tile", RIGHT, 10.0, Target())
    assert (report.verdict, report.points) == ("wrong", 0.0)
    assert str(report).startswith("✗ 03.tile wrong on this GPU") and "ended its process" in str(report)


def test_a_mistake_is_named_by_the_interpreted_child_and_never_launched_compiled(gpu_says):
    gpu_says({"right": True, "sentence": "must not be asked"})
    wrong = load("03.tile", "solution", (("tl.trans(K_j)", "tl.trans(K_j + 0.0)"), ("* scale", "* 1.0")))
    report = gpu_machine.check_on_gpu("03.tile", wrong, 10.0, Target())
    assert (report.verdict, report.mistake, report.points) == ("wrong", "scale-missing", 0.0)
    assert "must not be asked" not in str(report)


def test_a_function_whose_source_is_gone_is_not_judged():
    scope = {}
    exec("def answer(q, k, v, block_q, block_k):\n    return q", scope)
    report = gpu_machine.check_on_gpu("03.tile", scope["answer"], 10.0, Target())
    assert report.verdict == "not judged" and report.points == 0.0 and "not judged" in str(report)


def test_a_global_that_no_other_process_can_be_given_is_told_by_its_name():
    def unwritable(*args):
        return LEFT, RIGHT(*args)

    for report in (gpu_machine.check_on_gpu("03.tile", unwritable, 10.0, Target()),
                   gpu_machine.time_on_gpu(find("03.heads"), unwritable, Target())):  # fmt: skip
        assert report.points == 0.0 and "not judged" in str(report) and "`LEFT` is of type object" in str(report)


@pytest.fixture
def compiled_here(monkeypatch):
    """The compiled child's work on this machine: kernels are interpreted and unmetered, and nothing is timed."""
    monkeypatch.setattr(compiled, "place", lambda argument, device: place(argument))
    monkeypatch.setattr(compiled.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(child, "measured", lambda *args: 1e-3)
    with np.errstate(over="ignore"):  # weights of hidden scores, which a GPU lets pass, too
        yield lambda id: child.compiled(id, load(id, "solution"), Target(90, "NVIDIA H200"))


@pytest.mark.parametrize("id", ["00.add", "04.row_dot", "06.persistent"])
def test_of_a_compiled_kernel_only_what_comes_back_is_judged(compiled_here, id):
    assert compiled_here(id)["right"]


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id, e in exercises.EXERCISES.items() if e.timed and not e.gluon and not e.cuda])
def test_every_kernel_of_the_course_can_be_judged_compiled(compiled_here, id):
    assert compiled_here(id)["right"]


def test_the_timer_may_take_longer_for_it_compiles_a_whole_grid(monkeypatch, tmp_path):
    given = {}

    def too_long(command, timeout, **rest):
        given[command[3]] = timeout
        raise gpu_machine.subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(gpu_machine.subprocess, "run", too_long)
    asked = "05.tuned", tmp_path / "answer.py", "tuned_forward", Target(90, "NVIDIA H200")
    assert all(gpu_machine._ask(how, *asked) is None for how in ("interpreted", "compiled", "timed"))
    assert given["timed"] > given["compiled"] > given["interpreted"]
