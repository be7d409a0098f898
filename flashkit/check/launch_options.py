"""Do the launch options that a function is given reach its launch? Two calls that differ in one of them show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from flashkit.check.diagnose import Observation
from flashkit.exercises.contract import Case, Exercise
from flashkit.instruments import compile_gate

PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Ignored:
    """An option, and two values of it for which the very same was launched."""

    option: str
    values: tuple[int, int]

    def sentence(self) -> str:
        a, b = self.values
        return f"Your launch ignores `{self.option}`: for {a} and for {b} it is the same kernel with the same options."


def ignored(exercise: Exercise, observations: Sequence[Observation]) -> list[Ignored] | None:
    """The options that make no difference to what is launched; None where no two cases could show it.

    Whatever differs counts: launch options, constants, the kernel itself. How an option gets there is the student's.
    """
    found = []
    for option in exercise.launch_options:
        pairs = [(a, b) for a, b in combinations(observations, 2) if _differ_in(option, a.case, b.case)]
        if not pairs:
            return None
        if all(_same(a.outcome.launches, b.outcome.launches) for a, b in pairs):
            values = tuple(o.case.sizes[option] for o in pairs[0])
            found.append(Ignored(option, values))
    return found


def _differ_in(option: str, a: Case, b: Case) -> bool:
    alike = replace(a, why=b.why, sizes={**a.sizes, option: b.sizes[option]})
    return a.sizes[option] != b.sizes[option] and alike == b


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Was the same launched? Not where one of the kernels could not be told."""
    a, b = (_told(launches) for launches in (a, b))
    return bool(a) and None not in a and a == b


def _told(launches: Sequence[Any]) -> list[tuple | None]:
    """Text, options and types of each kernel: of launches that were seen here, or of those that a child claims."""
    claims = [x for x in launches if isinstance(x, Mapping)]
    seen = compile_gate.distinct(x for x in launches if not isinstance(x, Mapping))
    return [_of(claim) for claim in (*claims, *map(compile_gate.describe, seen))]


def _of(claim: Mapping[str, Any]) -> tuple | None:
    source, request = claim.get("source"), claim.get("request")
    if not isinstance(source, Mapping) or not isinstance(request, Mapping):
        return None
    return str(source.get("text")), _plain(request.get("options")), _plain(request.get("types"))


def _plain(values: Any) -> dict[str, Any]:
    return {n: v for n, v in values.items() if isinstance(v, PLAIN)} if isinstance(values, Mapping) else {}
