"""The fault bank of lab 03 itself: its wrong oracles are wrong on some case, and any two mistakes differ on some."""

import itertools

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check.compare import judge
from flashkit.check.diagnose import MATCH

LAB = ("03.tile", "03.rows", "03.causal", "03.heads")
SEEDS = (None, 1, 2, 3)  # None: the public cases
MORE_SEEDS = range(4, 24)

# Variants that make no difference where they are listed, and why.
NO_CAUSAL_MASK = "it differs from a right kernel only where a causal mask hides keys"
LOW_ENOUGH = "every row sees a key, and every score lies above this value"
HARMLESS = {
    "03.tile": {"finite-mask-value": (12, f"{LOW_ENOUGH}; or {NO_CAUSAL_MASK}"), "mask-after-max": (2, NO_CAUSAL_MASK)},
    "03.rows": {"finite-mask-value": (12, f"{LOW_ENOUGH}; or {NO_CAUSAL_MASK}"), "mask-after-max": (2, NO_CAUSAL_MASK)},
}


def predictions(id, seed):
    """Judges of the cases, and what each variant of each fault predicts on each case."""
    exercise = exercises.get(id)
    cases = exercise.cases if seed is None else exercise.draw(seed)
    with np.errstate(all="ignore"):
        wrong = {
            (fault.name, number): [exercise.wrong(case, variant) for case in cases]
            for fault in exercise.faults
            for number, variant in enumerate(fault.variants)
        }
    return cases, [judge(exercise, case) for case in cases], wrong


def is_right(judged, predicted):
    return "stopped" not in predicted and judged.agrees(predicted)


def look_alike(judged, case, a, b):
    """Would a kernel with the one mistake be taken for a kernel with the other, as far as this case shows?"""
    if "stopped" in a or "stopped" in b:
        return a.get("stopped") == b.get("stopped")
    loose = MATCH[case.dtype]
    return judged.agrees(a, b, loose) or judged.agrees(b, a, loose)


def check_bank(id, seed):
    cases, judges, wrong = predictions(id, seed)
    harmless = [key for key, p in wrong.items() if all(is_right(j, x) for j, x in zip(judges, p, strict=True))]
    counts = {name: sum(key[0] == name for key in harmless) for name, _ in harmless}
    assert counts == {name: number for name, (number, _) in HARMLESS.get(id, {}).items()}
    effective = [item for item in wrong.items() if item[0] not in harmless]
    with np.errstate(all="ignore"):
        alike = [
            (a, b)
            for (a, p), (b, q) in itertools.combinations(effective, 2)
            if a[0] != b[0] and all(look_alike(*x) for x in zip(judges, cases, p, q, strict=True))
        ]
    assert not alike


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("id", LAB)
def test_every_variant_is_wrong_somewhere_and_no_two_faults_look_alike(id, seed):
    check_bank(id, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
@pytest.mark.parametrize("id", LAB)
def test_so_it_is_for_many_secret_draws(id, seed):
    check_bank(id, seed)


@pytest.mark.parametrize("id", LAB)
def test_the_unchanged_steps_are_right_on_every_case(id):
    from flashkit.exercises.forward_faults import Variant

    exercise = exercises.get(id)
    for case in exercise.cases + exercise.draw(5):
        assert judge(exercise, case).agrees(exercise.wrong(case, Variant())), case.describe()


def test_the_bank_holds_the_syllabus():
    names = {fault.name for fault in exercises.get("03.heads").faults}
    assert len(names) >= 25
    assert names >= {
        "rescale-numerator-only", "rescale-denominator-only", "rescale-neither", "rescale-inverse", "own-max", "no-max",
        "max-from-zero", "tail-mask-missing", "finite-mask-value", "causal-top-left", "causal-strict",
        "causal-bound-short", "empty-row-nan", "scale-missing", "scale-twice", "normalised-every-step",
        "division-forgotten", "lse-base-2", "lse-without-m", "exp2-without-log2e", "gqa-head-map", "borrowed-stride",
        "int32-overflow", "other-missing", "low-precision-sum", "v-tail-unmasked", "last-tile-twice",
    }  # fmt: skip


@pytest.mark.parametrize("id", ("00.add", *LAB))
def test_every_fault_has_a_sentence_and_a_hint(id):
    for fault in exercises.get(id).faults:
        assert fault.sentence and not fault.sentence.endswith("."), fault.name
        assert fault.hint.endswith((".", "?")), fault.name


def test_a_mistake_of_00_add_is_told_from_every_other():
    cases, judges, wrong = predictions("00.add", None)
    for (a, p), (b, q) in itertools.combinations(wrong.items(), 2):
        same = all(look_alike(*x) for x in zip(judges, cases, p, q, strict=True))
        assert a[0] == b[0] or not same, (a, b)
