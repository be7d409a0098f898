"""The acceptance rule: honest rounding passes, NaN never does, infinities must stand where they belong."""

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check.compare import Judge, judge

CASES = [(id, case) for id in ("03.tile", "03.rows", "03.causal", "03.heads") for case in exercises.get(id).cases]


def one(reference, allowed=1e-3):
    reference = np.array(reference, float)
    return Judge({"o": reference}, {"o": np.full(reference.shape, allowed)})


def agrees(reference, came, allowed=1e-3):
    return one(reference, allowed).agrees({"o": np.array(came, float)})


def test_an_error_up_to_the_bound_passes_and_one_above_it_does_not():
    assert agrees([1.0, 2.0], [1.001, 2.0])
    assert not agrees([1.0, 2.0], [1.0011, 2.0])


def test_nan_never_equals_a_number_or_an_infinity():
    assert not agrees([1.0, 2.0], [1.0, np.nan])
    assert not agrees([-np.inf], [np.nan])
    assert not agrees([1.0], [np.nan], allowed=np.inf)


def test_infinities_must_be_the_same():
    assert agrees([-np.inf, 1.0], [-np.inf, 1.0])
    assert not agrees([-np.inf, 1.0], [-1e30, 1.0])
    assert not agrees([-np.inf, 1.0], [np.inf, 1.0])
    assert not agrees([0.0], [np.inf])


def test_the_first_difference_is_told_with_its_index():
    difference = one([[1.0, 2.0], [3.0, 4.0]]).worst({"o": np.array([[1.0, 2.0], [3.5, np.nan]])})
    assert (difference.output, difference.index, difference.expected, difference.came) == ("o", (1, 0), 3.0, 3.5)
    assert "o[1, 0] is 3.5, expected 3" in difference.sentence()


@pytest.mark.parametrize(("id", "case"), CASES, ids=[f"{id} {case.why}" for id, case in CASES])
def test_honest_runs_pass_and_a_hundredth_of_the_output_does_not(id, case):
    exercise = exercises.get(id)
    judged = judge(exercise, case)
    for run in exercise.honest(case):
        assert judged.agrees(run)
    off = {name: x + 0.02 * max(1.0, np.abs(x[np.isfinite(x)]).max(initial=0)) for name, x in judged.reference.items()}
    assert not judged.agrees(off)


def test_a_few_numbers_are_allowed_a_unit_in_the_last_place_too():
    """One key weighs 1 exactly; a right kernel that rounds exp(S - m) and divides by it is off by a unit at most."""
    exercise = exercises.get("03.heads")
    judged = judge(exercise, next(case for case in exercise.cases if case.why == "one query, one key"))
    o = judged.reference["o"]
    off = np.nextafter(o.astype(np.float32), np.float32(np.inf)).astype(float)
    assert judged.agrees({**judged.reference, "o": off})
    assert not judged.agrees({**judged.reference, "o": o + 1e-6})


def test_lse_is_judged_at_1e_5_where_arithmetic_allows_it():
    exercise = exercises.get("03.heads")
    judged = judge(exercise, exercise.cases[0])
    lse = judged.reference["lse"]
    assert judged.agrees({**judged.reference, "lse": lse + 0.9e-5})
    assert not judged.agrees({**judged.reference, "lse": lse + 1e-4})


def test_half_precision_is_not_looser_in_lse_where_weights_round_alike():
    """Else a sum of rounded weights would pass there."""
    exercise = exercises.get("03.heads")
    (case,) = (case for case in exercise.cases if case.values == "alike")
    assert judge(exercise, case).allowed["lse"].max() < 1e-4
