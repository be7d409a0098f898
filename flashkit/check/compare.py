"""The acceptance rule: is an output within what honest arithmetic in the same precision gives?

``max|out - ref| <= 2 max|low - ref| + atol`` with ``atol = 2 max|(r + 0.3) - 0.3 - r|``, r = ref rounded to the
output's dtype: the rule of the official FlashAttention tests; atol is at least one unit in the last place of the
largest element, in fp32 four, since the sums are fp32 too. low are several runs, in fp32 also such with bad roundings,
so that no draw of the inputs accuses a right kernel: :mod:`flashkit.exercises.honest`. lse is compared elementwise
within ``1e-5 max(1, |ref|)`` plus twice the honest error. NaN never equals anything; infinities must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from flashkit.exercises.contract import Case, Exercise, Outputs
from flashkit.exercises.inputs import NUMPY_DTYPES
from flashkit.runtime.call import Outcome

OF_LARGEST = 0.3


@dataclass(frozen=True)
class Difference:
    """The worst disagreement of one output: where, what was expected, what came."""

    output: str
    index: tuple[int, ...]
    expected: float
    came: float
    worst: float
    allowed: float
    at_most: bool = False

    def sentence(self) -> str:
        if self.at_most:
            return f"{self.output} is {self.came:.6g}, expected at most {self.expected:.6g}"
        if not self.index:  # a plain number is counted, not rounded
            return f"{self.output} is {self.came:.9g}, expected {self.expected:.9g}"
        at = ", ".join(map(str, self.index))
        return (
            f"{self.output}[{at}] is {self.came:.6g}, expected {self.expected:.6g} (allowed error {self.allowed:.2g})"
        )


@dataclass(frozen=True)
class Judge:
    """Reference and tolerances of one case, computed once."""

    reference: Outputs
    allowed: Mapping[str, np.ndarray]
    derive: Callable[[Outputs], Outputs] = lambda outputs: outputs
    at_most: tuple[str, ...] = ()
    simulate: Callable[[Outcome], Outcome] = lambda outcome: outcome

    def disagreement(
        self, outputs: Outputs, reference: Outputs | None = None, loose: float = 0.0
    ) -> dict[str, np.ndarray]:
        """Boolean maps of the elements that differ from ``reference`` (the right one if None) by more than allowed.

        ``loose`` widens the tolerance by that fraction of the reference, or of ``OF_LARGEST`` of its largest element:
        sums of huge numbers that nearly cancel keep the rounding of the huge ones.
        """
        at_most = self.at_most if reference is None else ()
        reference = self.reference if reference is None else reference
        return {
            name: _differs(
                np.maximum(outputs[name], reference[name]) if name in at_most else outputs[name],
                reference[name],
                self.allowed[name] + loose * _reach(reference[name]),
            )
            for name in self.reference
        }

    def of(self, names: Container[str]) -> Judge:
        """The same judge of these outputs alone."""
        return replace(self, reference={name: x for name, x in self.reference.items() if name in names})

    def agrees(self, outputs: Outputs, reference: Outputs | None = None, loose: float = 0.0) -> bool:
        return not any(bad.any() for bad in self.disagreement(outputs, reference, loose).values())

    def worst(self, outputs: Outputs) -> Difference | None:
        """The first differing element in row-major order of the first differing output."""
        for name, bad in self.disagreement(outputs).items():
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                expected, came = float(self.reference[name][index]), float(outputs[name][index])
                with np.errstate(invalid="ignore"):
                    error = np.abs(outputs[name] - self.reference[name])
                allowed = float(self.allowed[name].flat[0])
                return Difference(name, index, expected, came, float(error.max()), allowed, name in self.at_most)
        return None


def judge(exercise: Exercise, case: Case) -> Judge:
    """The oracle's outputs of a case in float64, and the tolerance of each element from the honest runs."""
    reference, honest = exercise.oracle(case), exercise.honest(case)
    allowed = {
        name: _allowed(exercise, case, name, reference[name], [run[name] for run in honest]) for name in reference
    }
    return Judge(
        reference,
        allowed,
        lambda outputs: exercise.derive(case, outputs),
        exercise.at_most,
        lambda outcome: exercise.simulate(case, outcome),
    )


def _allowed(exercise: Exercise, case: Case, name: str, reference: np.ndarray, honest: list) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # -inf - -inf where a row sees no key; _largest leaves it out
        error = max((_largest(run - reference) for run in honest), default=0.0)
    if reference.ndim == 0:  # a plain number is counted, not rounded
        return 1e-9 * np.maximum(1.0, _size(reference))
    if name in exercise.lse_outputs:
        return 2 * error + 1e-5 * np.maximum(1.0, _size(reference))
    rounded = np.where(np.isfinite(reference), reference, 0).astype(NUMPY_DTYPES[case.dtype])
    step = rounded.dtype.type(0.3)
    atol = 2 * _largest((rounded + step - step).astype(np.float64) - rounded.astype(np.float64))
    unit = float(np.spacing(np.max(np.abs(rounded), initial=0)))  # a few numbers may all happen to lose next to nothing
    units = 4 if case.dtype == "fp32" else 1
    return np.full(reference.shape, 2 * error + max(atol, units * unit))


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def _reach(reference: np.ndarray) -> np.ndarray:
    size = _size(reference)
    return np.maximum(np.maximum(1.0, size), OF_LARGEST * np.max(size, initial=0.0))


def _size(reference: np.ndarray) -> np.ndarray:
    return np.abs(np.where(np.isfinite(reference), reference, 0.0))


def _differs(came: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(came - expected) <= allowed
    return ~(close | (came == expected) | (np.isnan(came) & np.isnan(expected)))
