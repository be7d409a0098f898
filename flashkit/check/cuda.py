"""Judges an answer that is CUDA C++ text: it compiles anywhere; its answers and its time need a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from flashkit.check.compare import judge
from flashkit.check.diagnose import Observation
from flashkit.check.timing import TimeReport
from flashkit.exercises.contract import Case, Exercise
from flashkit.instruments import cuda_gate, cuda_run
from flashkit.instruments.compile_gate import Pending
from flashkit.runtime.beginner_errors import BLANK
from flashkit.runtime.call import Outcome, Problem
from flashkit.runtime.runner import run
from flashkit.runtime.source import Source

RIGHT = 0.7  # of a GPU cell's points: for right answers; the rest is for speed
FULL_SPEED = 0.35  # of the copy bandwidth, which earns all of the rest; the course's kernel reaches 0.40 on an H200


def observe(exercise: Exercise, function: Callable, cases: Sequence[Case], show: bool):
    """What came of the cases (nothing where there is no GPU), the compilations, and the run on the GPU or None."""
    outcome, kernel = run(function, exercise.call(cases[0]), show=show), exercise.cuda
    if not outcome.problem:
        outcome.problem = problem_of(outcome, cuda_gate.source_of(outcome.texts["source"], kernel.name, function))
    if outcome.problem:
        return [Observation(cases[0], judge(exercise, cases[0]), outcome)], [], None
    text, threads = outcome.texts["source"], int(outcome.outputs["threads"])
    listing = exercise.made_of is not None
    pending: list[Pending] = [cuda_gate.start(text, kernel.name, arch, function, listing) for arch in kernel.archs]
    if not torch.cuda.is_available() or not all(p.result().ok for p in pending):
        return [], pending, None
    observations, done = launched(exercise, text, threads, cases)
    return observations, pending, done


def launched(exercise: Exercise, text: str, threads: int, cases: Sequence[Case], child=cuda_run.plain_child):
    """The cases and the timed one on this machine's GPU, by a text that compiles: observations, and the run."""
    kernel = exercise.cuda
    launches = [kernel.launch(case, threads) for case in cases]
    timed = {k: v for k, v in kernel.launch(kernel.timed, threads).items() if k != "values"}
    done = cuda_run.run(text, kernel.name, launches, {**timed, **kernel.timed.sizes}, child)
    return _observations(exercise, cases, done), done


def time_report(exercise: Exercise, observations: Sequence[Observation], done: cuda_run.CudaRun) -> TimeReport:
    """The grade cell ``<id>.gpu`` from what a GPU gave."""
    return TimeReport(exercise, gpu_points(exercise, observations, done), _told(exercise, observations, done))


def _told(exercise: Exercise, observations: Sequence[Observation], done: cuda_run.CudaRun) -> str:
    right = sum(o.right for o in observations)
    if done.trouble or right < len(observations):
        return done.trouble.rstrip(".") or f"{right} of {len(observations)} cases right"
    size = " x ".join(map(str, exercise.cuda.timed.sizes.values()))
    return f"right; {1e6 * done.seconds:.0f} µs for {size}, {speed(exercise, done):.0%} of copy bandwidth"


def problem_of(outcome: Outcome, source: Source) -> Problem | None:
    """What is wrong with a returned text and launch choice before any compiler has seen it."""
    return _launch_problem(outcome) or _blank(source)


def _blank(source: Source) -> Problem | None:
    """The release's stub, which no C++ compiler would explain."""
    for line in source.lines:
        if line.text.strip().startswith("raise NotImplementedError"):
            return Problem("crashed", BLANK, where=line.where, lineno=line.lineno, line=line.text)
    return None


def _launch_problem(outcome: Outcome) -> Problem | None:
    threads = float(outcome.outputs["threads"])
    if threads % 32 or not 32 <= threads <= 1024:
        return Problem("wrong", f"A block has 32 to 1024 threads, in whole warps of 32, but {threads:g} were chosen.")
    return None


def _observations(exercise: Exercise, cases: Sequence[Case], done: cuda_run.CudaRun) -> list[Observation]:
    if done.trouble:
        outcome = Outcome(problem=Problem("crashed", done.trouble))
        return [Observation(cases[0], judge(exercise, cases[0]), outcome)]
    found = []
    for case, y, outside in zip(cases, done.outputs, done.outside, strict=True):
        outcome = Outcome({"y": y.astype(float)})
        if outside:
            outcome.problem = Problem("wrong", "It writes outside the rows of y: which columns may a thread store?")
        found.append(Observation(case, judge(exercise, case), outcome))
    return found


def speed(exercise: Exercise, done: cuda_run.CudaRun) -> float:
    """The bytes that must move over the time, as a share of what a plain copy of the same tensor reaches."""
    if not done.seconds:
        return 0.0
    return exercise.cuda.passes / 2 * done.copy_seconds / done.seconds


def gpu_points(exercise: Exercise, observations: Sequence[Observation], done: cuda_run.CudaRun | None) -> float:
    """Points of the GPU cell: none unless every case is right."""
    if done is None or done.trouble or not all(o.right for o in observations):
        return 0.0
    return round(exercise.gpu_points * (RIGHT + (1 - RIGHT) * min(1.0, speed(exercise, done) / FULL_SPEED)), 4)
