"""The grade cell that only a GPU judges, on a clock of our own: tiers, neighbours, physics, answers beside a peer."""

import random
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from flashkit import exercises
from flashkit.check import check_time, child, gpu_machine
from flashkit.check.cost import Target
from flashkit.check.large_call import buffers, call_of, course_kernel, disagreement, on_this_gpu
from flashkit.check.timing import TimeReport, floor_of, race, share_of
from flashkit.exercises.contract import TIERS
from flashkit.instruments import gpu_clock
from reference.machines import MACHINE
from tests.labs.kernels import load

HEADS, ATTENTION = exercises.get("03.heads"), exercises.get("04.attention")
OF_THE_GPU = {"arch": 90, "sms": 4}
WITH_CELL = [e for e in exercises.EXERCISES.values() if e.gpu is not None]


class Clock:
    """The timer's device: a call gives its seconds, and a neighbour stretches what it meets."""

    def __init__(self, neighbour=lambda: 1.0):
        self.neighbour = neighbour

    def refresh(self, seed):
        pass

    def run(self, call):
        seconds = call() * self.neighbour()
        return seconds, seconds + 20e-6

    def state(self):
        return {}

    def busy(self):
        return ""


def judged(seconds, device=None, floor=0.0):
    peers = {"SDPA": lambda: 1e-3}
    return race(HEADS, lambda: seconds, lambda: 2e-3, peers, device or Clock(), floor, show=lambda done, total: None)


@pytest.mark.parametrize(
    ("seconds", "share"), [(1.8e-3, 1.0), (2.19e-3, 1.0), (2.9e-3, 0.8), (5.9e-3, 0.6), (20e-3, 0.4)]
)
def test_the_ratio_to_the_courses_own_kernel_gives_the_points(seconds, share):
    report = judged(seconds)
    assert report.points == HEADS.gpu_points * share and report.pending == []
    assert f"{seconds / 2e-3:.2f} times the course's own" in str(report) and "times SDPA" in str(report)


def test_a_neighbours_load_is_not_judged_and_never_a_lower_grade():
    chance = random.Random(1)
    report = judged(1.8e-3, Clock(lambda: chance.choice((1, 1, 1, 2.5, 4))))
    assert report.points == 0 and report.pending == ["time on a GPU"]
    assert "UNSTABLE after 3 tries" in str(report) and "points are pending" in str(report)


def test_a_neighbour_that_leaves_is_forgiven():
    chance, turn = random.Random(2), iter(range(10**6))
    report = judged(1.8e-3, Clock(lambda: chance.choice((1, 3)) if next(turn) < 100 else 1))
    assert report.points == HEADS.gpu_points


def test_faster_than_physics_is_not_judged():
    floor = floor_of(HEADS, HEADS.gpu.case, MACHINE["H200 measured"])
    assert floor == pytest.approx(4 * 2 * 16 * 4096**2 * 64 / 803e12)
    assert "implausible" in judged(0.5 * floor, floor=floor).why and judged(1.5 * floor, floor=floor).points
    assert floor_of(HEADS, HEADS.gpu.case, None) == 0.0


def test_tiers_rise_and_end_in_a_share_for_what_is_right_but_slow():
    assert [share_of(ratio, TIERS) for ratio in (0.5, 1.1, 1.2, 2.0, 9.0)] == [1.0, 1.0, 0.8, 0.6, 0.4]


@pytest.mark.parametrize("exercise", WITH_CELL, ids=lambda exercise: exercise.id)
def test_a_cell_is_worth_points_and_takes_long_enough_to_be_timed(exercise):
    assert exercise.gpu_points > 0 and exercise.timed is not None
    assert floor_of(exercise, exercise.gpu.case, MACHINE["H200 measured"]) > 90e-6
    assert {n for n in exercise.call(exercise.cases[0]).options} <= {*exercise.gpu.case.options, *OF_THE_GPU}


def test_a_call_is_told_what_gpu_it_runs_on(monkeypatch):
    class Here:
        multi_processor_count = 46

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: Here)
    assert on_this_gpu(HEADS.gpu.case, 86).options == {**HEADS.gpu.case.options, "arch": 86, "sms": 46}


def test_without_a_gpu_it_is_pending():
    report = check_time("03.heads", load("03.heads", "solution"))
    assert report.points == 0 and report.pending and "points are pending" in str(report)


def small(exercise, **options):
    """The cell's call at a size that the interpreter can do."""
    case, options = exercise.gpu.case, {**OF_THE_GPU, **options}
    sizes = {**case.sizes, "B": 1, "H_q": 2, "H_kv": 2, "N_q": 40, "N_k": 40, "d": 16, "d_v": 16}
    tiles = {"block_q": 16, "block_k": 16, "scale": 0.25}
    return replace(case, sizes=sizes, options={**case.options, **tiles, **options})


def filled(exercise, case):
    tensors, generator = buffers(exercise, case, "cpu"), torch.Generator().manual_seed(3)
    for tensor in tensors.values():
        tensor.normal_(generator=generator)
    return tensors


@pytest.mark.parametrize(
    ("exercise", "patch"),
    [(HEADS, ("acc = alpha[:, None] * acc", "acc = acc")), (ATTENTION, ("dK_j * scale", "dK_j"))],
    ids=("forward", "backward"),
)
def test_answers_stand_beside_the_courses_kernel(exercise, patch):
    course, case = course_kernel(exercise), small(exercise)
    tensors = filled(exercise, case)
    assert disagreement(exercise, load(exercise.id, "solution"), course, case, tensors) == ""
    wrong = load(exercise.id, "solution", (patch,))
    told = disagreement(exercise, wrong, course, case, tensors)
    assert ("dk is off" if exercise is ATTENTION else "o is off") in told and "fp16" in told


def test_a_peer_gives_the_same_results_from_the_same_arguments():
    for exercise in (HEADS, ATTENTION, exercises.get("06.persistent")):
        case = small(exercise)
        tensors = filled(exercise, case)
        both = course_kernel(exercise), exercise.gpu.peers["SDPA"]
        own, peer = (call_of(exercise, function, case, tensors)() for function in both)
        results = [(own[0], peer[0]), *zip(own[1:], peer[1:], strict=False)]
        assert all(torch.allclose(a, b, atol=2e-2) for a, b in results)


class Answers:
    """Stands in for the three children."""

    def __init__(self, **told):
        self.told, self.asked = told, []

    def __call__(self, how, *rest):
        self.asked.append(how)
        return self.told[how]


@pytest.mark.parametrize(
    ("told", "asked", "points", "said"),
    [
        ({"interpreted": {"verdict": "wrong"}}, 1, 0, "only what is right is timed"),
        ({"compiled": None}, 2, 0, "gave no answer"),
        ({"timed": {"told": "right", "points": 7}}, 3, 7, "7 of 10"),
        ({"timed": {"why": "UNSTABLE"}}, 3, 0, "pending"),
    ],
)
def test_only_what_is_right_in_both_other_children_is_timed(monkeypatch, told, asked, points, said):
    answers = Answers(**{"interpreted": {"verdict": "right"}, "compiled": {"right": True}, **told})
    monkeypatch.setattr(gpu_machine, "_ask", answers)
    report = gpu_machine.time_on_gpu(HEADS, load("03.heads", "solution"), Target(90, "NVIDIA H200"))
    assert isinstance(report, TimeReport) and len(answers.asked) == asked
    assert report.points == points and said in str(report)


def test_on_a_gpu_a_check_tells_the_measured_time_beside_the_predicted(monkeypatch):
    said = {"verdict": "right", "mistake": "", "points": 40.0, "out_of": 40.0, "text": "✓ right", "html": ""}
    first = {**said, "pending": ["races", "time on a GPU"], "predicted": 2.2e-3}
    second = {"right": True, "sentence": "compiled and right.", "measured": 2e-3}
    monkeypatch.setattr(gpu_machine, "_ask", Answers(interpreted=first, compiled=second))
    report = gpu_machine.check_on_gpu("03.heads", load("03.heads", "solution"), 40.0, Target(90, "NVIDIA H200"))
    assert "Measured time: 2 ms; predicted / measured 1.10." in report.text and report.pending == []


class Bench(Clock):
    """Stands in for the clock that the child makes: fills real buffers, and every call takes a millisecond."""

    def __init__(self, tensors):
        super().__init__()
        self.tensors = tensors

    def refresh(self, seed):
        generator = torch.Generator().manual_seed(seed)
        for tensor in self.tensors.values():
            tensor.normal_(generator=generator)

    def run(self, call):
        return 1e-3, 1.02e-3

    @contextmanager
    def alone(self):
        yield self


@pytest.fixture
def on_the_cpu(monkeypatch):
    """The child that times, with every boundary to a GPU replaced; bf16 is left out, which no CPU interprets right."""
    exercise = replace(HEADS, gpu=replace(HEADS.gpu, case=small(HEADS)), timed=replace(HEADS.timed, sizes={}))
    monkeypatch.setattr(child, "find", lambda id: exercise)
    monkeypatch.setattr(child, "buffers", lambda exercise, case: buffers(exercise, case, "cpu"))
    monkeypatch.setattr(child, "on_this_gpu", lambda case, arch: case)
    monkeypatch.setattr(child, "DTYPES", ("fp16",))
    monkeypatch.setattr(gpu_clock, "GPU", Bench)


def test_the_child_that_times_goes_from_answers_to_points(on_the_cpu):
    told = child.timed("03.heads", load("03.heads", "solution"), Target(90, "NVIDIA H200"))
    assert told["points"] == HEADS.gpu_points and "1.00 times the course's own kernel" in told["told"]
    assert "1.00 times SDPA" in told["told"] and told["why"] == ""
    wrong = load("03.heads", "solution", (("acc = alpha[:, None] * acc", "acc = acc"),))
    told = child.timed("03.heads", wrong, Target(90, "NVIDIA H200"))
    assert "o is off by" in told["told"] and "points" not in told


def test_the_child_without_solutions_or_without_a_cell_says_so(on_the_cpu, monkeypatch):
    monkeypatch.setattr(child, "course_kernel", lambda exercise: None)
    assert "no solutions/" in child.timed("03.heads", None, Target())["why"]
    monkeypatch.setattr(child, "find", lambda id: exercises.get("03.tile"))
    assert "no timing" in child.timed("03.tile", None, Target())["why"]


def test_the_measured_time_is_the_large_calls_median(on_the_cpu):
    exercise = child.find("03.heads")
    assert child.measured(exercise, load("03.heads", "solution"), Target()) == 1e-3
