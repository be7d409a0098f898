"""The grade cell that only a GPU can judge: pending wherever it was not judged, neither a pass nor a loss."""

from __future__ import annotations

import html
from dataclasses import dataclass

from flashkit.environment import capabilities
from flashkit.exercises.contract import Exercise

ELSEWHERE = "kernels are timed by `make benchmark` and by a class's GPU grader, not in a notebook"


@dataclass(frozen=True)
class TimeReport:
    """What became of an exercise's GPU points: ``points`` of ``out_of``, and ``pending`` says what was not judged."""

    exercise: Exercise
    points: float = 0.0
    told: str = ""  # what a GPU found; "" where it was not judged

    @property
    def out_of(self) -> float:
        return float(self.exercise.gpu_points)

    @property
    def pending(self) -> list[str]:
        return [] if self.told else ["time on a GPU"]

    def __str__(self) -> str:
        if self.told:
            return f"{self.exercise.id}.gpu: {self.points:g} of {self.out_of:g} points: {self.told}."
        time = capabilities()["time"]
        why = ELSEWHERE if time.judged else time.how
        return f"? {self.exercise.id}.gpu not judged here: {why}. {self.out_of:g} points are pending."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            f'<div class="flashkit-report" role="group" aria-label="Result of {self.exercise.id}.gpu" '
            'style="border-left:6px solid #555555;background:#ffffff;color:#1a1a1a;padding:.6em 1em;'
            'margin:.3em 0;font-family:sans-serif">'
            f"{html.escape(str(self))}</div>"
        )
