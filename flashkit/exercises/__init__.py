"""The exercises of the course by id, such as ``03.causal``. One module a lab; :mod:`contract` says what they hold."""

from __future__ import annotations

from flashkit.exercises import (
    backward,
    flash_forward,
    hbm_traffic,
    hopper_kernels,
    online_softmax,
    parallelism,
    pipelines,
    start_here,
    tile_budgets,
)
from flashkit.exercises.contract import Case, Exercise, Fault

LABS = (
    *(start_here, hbm_traffic, online_softmax, flash_forward, backward),
    *(tile_budgets, parallelism, pipelines, hopper_kernels),
)
EXERCISES: dict[str, Exercise] = {e.id: e for lab in LABS for e in lab.EXERCISES}


def get(id: str) -> Exercise:
    """The exercise with this id; KeyError with the known ids when there is none."""
    if id not in EXERCISES:
        raise KeyError(f"no exercise {id!r}; there are {', '.join(EXERCISES)}")
    return EXERCISES[id]


def points(grade_id: str) -> float:
    """The points of a grade cell: ``03.heads`` is judged anywhere, ``03.heads.gpu`` only on a GPU."""
    exercise = get(grade_id.removesuffix(".gpu"))
    return float(exercise.gpu_points if grade_id.endswith(".gpu") else exercise.points)


__all__ = ["EXERCISES", "Case", "Exercise", "Fault", "get", "points"]
