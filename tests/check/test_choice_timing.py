"""The choice against an exhaustive sweep, on a clock of our own: what a call returns is its seconds."""

import random

import pytest

from flashkit import exercises
from flashkit.check.choice_timing import time_choice
from tests.check.test_time_cell import Clock

TUNED = exercises.get("05.tuned")
GRID = {candidate: 1e-3 + 1e-4 * number for number, candidate in enumerate(TUNED.tuning.candidates)}
BEST = min(GRID, key=GRID.get)


class OutOfResources(Exception):
    """As Triton raises it."""


def too_large():
    raise OutOfResources("shared memory, Required: 163840, Hardware limit: 101376")


def judged(seconds, candidates=GRID, device=None):
    calls = {c: (lambda s=s: s) if isinstance(s, float) else s for c, s in candidates.items()}
    return time_choice(TUNED, lambda: seconds, calls, device or Clock(), show=lambda done, total: None)


@pytest.mark.parametrize(
    ("seconds", "share"), [(0.9e-3, 1.0), (1.09e-3, 1.0), (1.2e-3, 0.8), (1.4e-3, 0.6), (3e-3, 0.4)]
)
def test_the_ratio_to_the_best_of_the_grid_gives_the_points(seconds, share):
    report = judged(seconds)
    assert report.points == TUNED.gpu_points * share and report.pending == []
    assert f"the best of {len(GRID)} candidates" in str(report) and "64 x 32, 4 warps, 2 stages" in str(report)


def test_candidates_that_cannot_be_launched_are_out():
    report = judged(1.15e-3, {**GRID, BEST: too_large})
    assert report.points == TUNED.gpu_points and f"{len(GRID) - 1} candidates" in str(report)
    none = judged(1e-3, dict.fromkeys(GRID, too_large))
    assert none.pending and "no candidate" in str(none)


def test_other_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        judged(1e-3, {BEST: lambda: 1 / 0})


def test_a_neighbours_load_is_not_judged():
    chance = random.Random(3)
    report = judged(1e-3, device=Clock(lambda: chance.choice((1, 1, 1, 2.5, 4))))
    assert report.points == 0 and report.pending and "UNSTABLE" in str(report)
