"""A launch choice on a GPU: timed against the fastest of every candidate of its exercise's grid, in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from flashkit.check.choices import Candidate, told
from flashkit.check.timing import TimeReport, share_of
from flashkit.exercises.contract import Exercise
from flashkit.instruments.timing import Call, Device, compare, measure

TIERS = ((1.1, 1.0), (1.25, 0.8), (1.5, 0.6))  # largest ratio to the best candidate's time, share of the points
ROUNDS = 7  # of each candidate, to find the best; the best is then timed with care


def time_choice(
    exercise: Exercise,
    kernel: Call,
    candidates: Mapping[Candidate, Call],
    device: Device,
    floor: float = 0.0,
    show=None,
) -> TimeReport:
    """Sweeps the candidates, then times the choice against the best: the ratio gives the points of ``<id>.gpu``.

    A candidate that cannot be launched on this GPU is out. Nothing is graded when the timer does not trust itself.
    """
    seconds = {}
    for candidate, call in candidates.items():
        try:
            seconds[candidate] = statistics.median(measure(call, device, rounds=ROUNDS))
        except Exception as error:  # Triton's OutOfResources, or a launch that the driver refuses
            if type(error).__name__ not in ("OutOfResources", "RuntimeError"):
                raise
    if not seconds:
        return TimeReport(exercise, why="no candidate of the grid could be launched on this GPU")
    best = min(seconds, key=seconds.get)
    timing = compare(kernel, candidates[best], device, floor=floor, show=show)
    if timing.verdict != "measured":
        return TimeReport(exercise, why=f"{timing.verdict}: {timing.why}")
    ratio = timing.ratio
    points = round(exercise.gpu_points * share_of(ratio.value, TIERS), 4)
    found = (
        f"{timing.seconds * 1e3:.3f} ms, {ratio.value:.2f} times the best of {len(seconds)} candidates "
        f"({ratio.low:.2f} to {ratio.high:.2f}), which is {told(best)}"
    )
    return TimeReport(exercise, points, found)
