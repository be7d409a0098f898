"""The fault bank of lab 04 itself: its wrong oracles are wrong on some case, and any two mistakes differ on some."""

import itertools

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check.compare import judge
from flashkit.check.diagnose import MATCH
from flashkit.exercises.backward_faults import Variant

LAB = ("04.row_dot", "04.dkdv", "04.dq", "04.attention")


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


def ended(predicted):
    """How a kernel ends that gives no outputs; None where it gives some."""
    return predicted.get("stopped") or ("crashed" if "crashed" in predicted else None)


def look_alike(judged, case, a, b):
    """Would a kernel with the one mistake be taken for a kernel with the other, as far as this case shows?"""
    if ended(a) or ended(b):
        return ended(a) == ended(b)
    loose = MATCH[case.dtype]
    return judged.agrees(a, b, loose) or judged.agrees(b, a, loose)


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("id", LAB)
def test_every_variant_is_wrong_somewhere_and_no_two_faults_look_alike(id, seed):
    cases, judges, wrong = predictions(id, seed)
    for key, predicted in wrong.items():
        assert any(ended(p) or not j.agrees(p) for j, p in zip(judges, predicted, strict=True)), key
    with np.errstate(all="ignore"):
        alike = [
            (a, b)
            for (a, p), (b, q) in itertools.combinations(wrong.items(), 2)
            if a[0] != b[0] and all(look_alike(*x) for x in zip(judges, cases, p, q, strict=True))
        ]
    assert not alike


@pytest.mark.parametrize("id", LAB)
def test_the_unchanged_steps_are_right_on_every_case(id):
    exercise = exercises.get(id)
    for case in exercise.cases + exercise.draw(5):
        assert judge(exercise, case).agrees(exercise.wrong(case, Variant())), case.describe()


def test_the_banks_hold_the_syllabus():
    names = {fault.name for id in LAB for fault in exercises.get(id).faults}
    assert names >= {
        "d-missing", "d-added", "d-unnormalised", "d-in-fp16", "p-unnormalised", "lse-base", "scale-missing-dk",
        "scale-missing-dq", "scale-twice-dq", "dv-not-transposed", "dk-not-transposed", "dq-last-tile", "dq-race",
        "causal-ignored", "causal-always", "causal-start-late", "causal-bound-short", "gqa-not-summed",
        "do-contiguous", "preprocess-tile",
    }  # fmt: skip


@pytest.mark.parametrize("id", LAB)
def test_every_fault_has_a_sentence_and_a_hint(id):
    for fault in exercises.get(id).faults:
        assert fault.sentence and not fault.sentence.endswith("."), fault.name
        assert fault.hint.endswith((".", "?")), fault.name


def test_a_gradient_is_judged_alone_and_with_the_others():
    """A scale missing in dK leaves dQ, dV and o right, so that it can be told from one that is missing in dQ."""
    exercise = exercises.get("04.attention")
    case = next(case for case in exercise.cases if "unequal" in case.why)
    judged, faults = judge(exercise, case), {fault.name: fault for fault in exercise.faults}
    for name, spoilt in (("scale-missing-dk", {"dk"}), ("scale-missing-dq", {"dq"}), ("d-missing", {"dq", "dk"})):
        wrong = judged.disagreement(exercise.wrong(case, faults[name].variants[0]))
        assert {output for output, bad in wrong.items() if bad.any()} == spoilt
