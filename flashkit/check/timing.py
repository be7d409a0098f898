"""The grade cell that only a GPU can judge: pending wherever it was not judged, neither a pass nor a loss.

Right answers in fp16 and bf16 are the gate. Then the fair timer sets the kernel beside the course's own in one run;
the ratio, never milliseconds, gives the points. A timer that does not trust itself gives no grade, not a lower one.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass

from flashkit.check.report import COLOURS, PAGE
from flashkit.environment import capabilities
from flashkit.exercises.contract import SLOW, Case, Exercise
from flashkit.exercises.inputs import ITEMSIZE
from flashkit.instruments.timing import Call, Device, Timing, compare
from reference.machines import Machine

ELSEWHERE = "it has no timing"
DTYPES = ("fp16", "bf16")


@dataclass(frozen=True)
class TimeReport:
    """What became of an exercise's GPU points: ``points`` of ``out_of``, and ``pending`` says what was not judged."""

    exercise: Exercise
    points: float = 0.0
    told: str = ""  # what a GPU found; "" where it was not judged
    why: str = ""  # it was not judged, where the machine is not the reason

    @property
    def out_of(self) -> float:
        """All points of the cell."""
        return float(self.exercise.gpu_points)

    @property
    def pending(self) -> list[str]:
        """What a GPU would still have to judge."""
        return [] if self.told else ["time on a GPU"]

    def __str__(self) -> str:
        if self.told:
            return f"{self.exercise.id}.gpu: {self.points:g} of {self.out_of:g} points: {self.told}."
        time = capabilities()["time"]
        why = self.why or (ELSEWHERE if time.judged else time.how)
        return f"? {self.exercise.id}.gpu not judged here: {why}. {self.out_of:g} points are pending."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            f'<div class="flashkit-report" role="group" aria-label="Result of {self.exercise.id}.gpu" '
            f'style="border-left:6px solid {COLOURS["not judged"]};{PAGE};padding:.6em 1em;margin:.3em 0;'
            'font-family:sans-serif">'
            f"{html.escape(str(self))}</div>"
        )


def share_of(ratio: float, tiers) -> float:
    """The share of the points for a kernel that takes ``ratio`` times the course's own."""
    return next((share for most, share in tiers if ratio <= most), SLOW)


def floor_of(exercise: Exercise, case: Case, machine: Machine | None) -> float:
    """The least seconds that physics allows: its FLOP over the peak, or each argument read once; 0 if not known."""
    if machine is None:
        return 0.0
    read = sum(math.prod(shape) * ITEMSIZE[dtype] for shape, dtype in exercise.timed.tensors(case).values())
    return machine.seconds(exercise.gpu.flop(case), read)


def graded(exercise: Exercise, timing: Timing, beside: Mapping[str, Timing]) -> TimeReport:
    """The report of a right kernel from the timer's answer; ``beside`` are PyTorch's, which give no points."""
    if timing.verdict != "measured":
        tried = f" after {timing.attempts} tries" if timing.verdict == "UNSTABLE" else ""
        return TimeReport(exercise, why=f"{timing.verdict}{tried}: {timing.why}")
    ratio, points = timing.ratio, exercise.gpu_points * share_of(timing.ratio.value, exercise.gpu.tiers)
    told = (
        f"right in {' and '.join(DTYPES)}; {timing.seconds * 1e3:.3f} ms, {ratio.value:.2f} times the course's own "
        f"kernel ({ratio.low:.2f} to {ratio.high:.2f})"
    )
    for name, other in beside.items():
        if other.verdict == "measured":
            told += f", {other.ratio.value:.2f} times {name}"
    return TimeReport(exercise, round(points, 4), told)


def race(
    exercise: Exercise, kernel: Call, course: Call, peers: Mapping[str, Call], device: Device, floor: float, show=None
) -> TimeReport:
    """Times a right kernel against the course's own, then against each peer, on ``device``; grades the first."""
    timing = compare(kernel, course, device, floor=floor, show=show)
    beside = {}
    if timing.verdict == "measured":
        beside = {name: compare(kernel, peer, device, show=show) for name, peer in peers.items()}
    return graded(exercise, timing, beside)
