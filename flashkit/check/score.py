"""How points follow from a verdict: right answers are the gate; then 70 % right, 15 % bytes, 15 % compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashkit.check.diagnose import Observation
from flashkit.exercises.contract import SHARES, Exercise


@dataclass(frozen=True)
class Bytes:
    """Bytes requested of one tensor in the worst case, against the budget of that case.

    least: fewer than these cannot give a right answer, so such a count is a broken or a lying meter's.
    """

    tensor: str
    requested: int
    budget: int
    least: int = 0

    @property
    def within(self) -> bool:
        return self.plausible and self.requested <= self.budget

    @property
    def plausible(self) -> bool:
        return self.requested >= self.least


def bytes_requested(exercise: Exercise, observations: list[Observation]) -> list[Bytes]:
    """One row a tensor: the case with the worst ratio. Tensors without a budget have budget 0."""
    rows: dict[str, Bytes] = {}
    for o in observations:
        budget, least = exercise.budget(o.case), exercise.least(o.case)
        requested: dict[str, int] = {}
        for name, t in o.outcome.traffic.items():
            name = name if name in budget or "*" not in budget else "*"
            requested[name] = requested.get(name, 0) + t.loaded + t.stored + t.atomic
        for name in {**budget, **requested}:
            row = Bytes(name, requested.get(name, 0), budget.get(name, 0), least.get(name, 0))
            if name not in rows or _ratio(row) > _ratio(rows[name]):
                rows[name] = row
    return list(rows.values())


def _ratio(row: Bytes) -> tuple[float, int]:
    if not row.plausible:
        return (float("inf"), row.requested)
    return (row.requested / row.budget if row.budget else float(bool(row.requested)) * 1e9, row.requested)


def points(out_of: float, parts: Mapping[str, bool | None], shares: Mapping[str, float] = SHARES) -> float:
    """Points for the parts that hold. ``right`` is the gate: none if it was judged and does not hold, or counts itself.

    A part that is None was not judged and gives none.
    """
    if not parts["right"] and (parts["right"] is False or "right" in shares):
        return 0.0
    earned = sum(share for name, share in shares.items() if parts.get(name))
    return round(min(max(out_of * earned, 0.0), out_of), 4)
