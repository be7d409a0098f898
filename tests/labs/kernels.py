"""The kernels of the proof by name: solutions, whole variants, and patched copies of either, loaded from real files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from flashkit import exercises
from flashkit.exercises import lab_cells

ROOT = Path(__file__).parents[2]
VARIANTS = Path(__file__).parent / "variants"

Patch = tuple[tuple[str, str], ...]


def base_source(exercise_id: str, base: str) -> str:
    """Source of ``solution``, the exercise's own, or of a variant such as ``heads_exp2``."""
    if base == "solution":
        return lab_cells.course_source(exercise_id)
    return (VARIANTS / f"{base}.py").read_text()


def patched(text: str, patch: Sequence[tuple[str, str]]) -> str:
    """``text`` with each (old, new) replaced; ValueError unless old occurs exactly once and new differs."""
    for old, new in patch:
        if text.count(old) != 1 or old == new:
            raise ValueError(f"{old!r} occurs {text.count(old)} times, not once, or is replaced by itself")
        text = text.replace(old, new)
    return text


@cache
def load(exercise_id: str, base: str, patch: Patch = ()) -> Callable:
    """The function of an exercise from a base kernel and a patch."""
    return lab_cells.load(patched(base_source(exercise_id, base), patch), exercises.get(exercise_id).function)
