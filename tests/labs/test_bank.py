"""The fault banks of all labs: each wrong oracle is wrong on some case, and any two mistakes differ on some.

Exercises join by themselves. What an exercise's mistakes cannot tell apart, or cannot show, is listed with its reason.
"""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check.compare import judge
from flashkit.check.diagnose import MATCH

IDS = tuple(exercises.EXERCISES)
SEEDS = range(1, 9)  # of secret draws, in the slow suite, which has 35 exercises to draw for

# Variants that make no difference where they are listed, how many, and why.
NO_CAUSAL_MASK = "it differs from a right kernel only where a causal mask hides keys"
LOW_ENOUGH = "every row sees a key, and every score lies above this value"
ONE_TILE = {"finite-mask-value": (22, f"{LOW_ENOUGH}; or {NO_CAUSAL_MASK}"), "mask-after-max": (2, NO_CAUSAL_MASK)}
TWICE = {name: (2 * number, why) for name, (number, why) in ONE_TILE.items()}  # each variant in two spellings
HARMLESS = {
    "01.softmax": {"finite-mask-value": TWICE["finite-mask-value"]},
    "02.softmax": TWICE,
    "02.weighted_sum": ONE_TILE,
    "03.tile": ONE_TILE,
    "03.rows": ONE_TILE,
    "05.forward": {"finite-mask-value": ONE_TILE["finite-mask-value"]},
}
RIGHT_TO_LEFT = "from right to left it overflows only where a block's maximum is over 88 above the next one's"
AT_TIMES_HARMLESS = {"02.softmax": {"own-max": (8, RIGHT_TO_LEFT)}, "02.weighted_sum": {"own-max": (4, RIGHT_TO_LEFT)}}

# What the syllabus wants a lab's banks to hold.
SYLLABUS = {
    "01": {
        "itemsize-ignored", "p-read-forgotten", "kv-once", "tail-mask-missing", "tail-load-unmasked",
        "tail-store-unmasked", "no-max",
    },
    "02": {
        "rescale-numerator-only", "rescale-denominator-only", "rescale-neither", "rescale-inverse", "own-max",
        "first-max-kept", "max-from-zero", "no-max", "exp2-without-log2e", "states-averaged", "warps-not-combined",
        "empty-state-nan",
    },
    "03": {
        "rescale-numerator-only", "rescale-denominator-only", "rescale-neither", "rescale-inverse", "own-max", "no-max",
        "max-from-zero", "tail-mask-missing", "finite-mask-value", "causal-top-left", "causal-strict",
        "causal-bound-short", "empty-row-nan", "scale-missing", "scale-twice", "normalised-every-step",
        "division-forgotten", "lse-base-2", "lse-without-m", "exp2-without-log2e", "gqa-head-map", "borrowed-stride",
        "int32-overflow", "other-missing", "low-precision-sum", "v-tail-unmasked", "last-tile-twice",
    },
    "04": {
        "d-missing", "d-added", "d-unnormalised", "d-in-fp16", "p-unnormalised", "lse-base", "scale-missing-dk",
        "scale-missing-dq", "scale-twice-dq", "dv-not-transposed", "dk-not-transposed", "dq-last-tile", "dq-race",
        "causal-ignored", "causal-always", "causal-start-late", "causal-bound-short", "gqa-not-summed",
        "do-contiguous", "preprocess-tile",
    },
    "05": {"v-forgotten", "elements-for-bytes", "register-limit-forgotten", "static-48-kib", "scores-forgotten"},
}  # fmt: skip

each_exercise = pytest.mark.parametrize("id", IDS)


def predictions(id, seed):
    """Cases, their judges, and what each variant of each fault predicts on each case."""
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


def is_right(judged, predicted):
    return not ended(predicted) and judged.agrees(predicted)


def look_alike(judged, case, a, b):
    """Would a kernel with the one mistake be taken for a kernel with the other, as far as this case shows?"""
    if ended(a) or ended(b):
        return ended(a) == ended(b)
    loose = MATCH[case.dtype]
    return judged.agrees(a, b, loose) or judged.agrees(b, a, loose)


def check_bank(id, seed):
    cases, judges, wrong = predictions(id, seed)
    with np.errstate(all="ignore"):
        right = {key: [is_right(*x) for x in zip(judges, p, strict=True)] for key, p in wrong.items()}
        telling = np.argsort([sum(on_case) for on_case in zip(*right.values(), strict=True)], kind="stable")
        effective = [key for key in wrong if not all(right[key])]
        alike = [
            (a, b)
            for a, b in itertools.combinations(effective, 2)
            if a[0] != b[0] and all(look_alike(judges[c], cases[c], wrong[a][c], wrong[b][c]) for c in telling)
        ]
    counts = Counter(name for name, number in wrong if all(right[name, number]))
    at_times = {name: number for name, (number, _) in AT_TIMES_HARMLESS.get(id, {}).items() if counts[name]}
    assert counts == at_times | {name: number for name, (number, _) in HARMLESS.get(id, {}).items()}
    assert not alike


@each_exercise
def test_every_variant_is_wrong_somewhere_and_no_two_faults_look_alike(id):
    check_bank(id, None)  # the public cases


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@each_exercise
def test_so_it_is_for_many_secret_draws(id, seed):
    check_bank(id, seed)


def unchanged(variant):
    """The variant that changes nothing, of the same kind; None where a variant is a whole wrong answer."""
    if isinstance(variant, tuple):
        parts = [unchanged(part) or part for part in variant]
        return tuple(parts) if any(map(unchanged, variant)) else None
    fields = dataclasses.fields(variant) if dataclasses.is_dataclass(variant) else ()
    given = [f.name for f in fields if f.default is f.default_factory]  # both missing: the field has no default
    return type(variant)() if fields and not given else None


def neutral(exercise):
    variants = [unchanged(variant) for fault in exercise.faults for variant in fault.variants]
    return [variant for at, variant in enumerate(variants) if variant is not None and variant not in variants[:at]]


@pytest.mark.parametrize("id", [id for id in IDS if neutral(exercises.get(id))])
def test_the_unchanged_steps_are_right_on_every_case(id):
    """So whatever a wrong oracle gives comes from its mistake, not from how it is built."""
    exercise = exercises.get(id)
    for case in exercise.cases + exercise.draw(5):
        for variant in neutral(exercise):
            assert judge(exercise, case).agrees(exercise.wrong(case, variant)), case.describe()


def test_most_exercises_have_unchanged_steps():
    assert {"01.softmax", "02.softmax", "03.heads", "04.attention"} <= {id for id in IDS if neutral(exercises.get(id))}


@pytest.mark.parametrize("lab", SYLLABUS)
def test_the_banks_hold_the_syllabus(lab):
    names = {fault.name for id in IDS if id.startswith(f"{lab}.") for fault in exercises.get(id).faults}
    assert names >= SYLLABUS[lab]


@each_exercise
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
