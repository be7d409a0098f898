"""The kill matrix as tests: one planted fault, pair of faults or correct variant each. See judging.py for the rule.

Fast are one mutant for each fault of each lab, one pair of faults for each exercise, and every correct variant that
does not take half a minute; the rest, other spellings and other exercises, are slow.
"""

from collections import Counter

import pytest

from tests.labs.correct_variants import NAMES, OVER_BUDGET, exercise_of
from tests.labs.judging import is_misnamed, is_named, judge, judge_mutant
from tests.labs.kill_matrix import EQUIVALENT, SINGLE, TWO_FAULTS, is_asked, main, summary
from tests.labs.mutant import Mutant

SEEDS = (11,)  # of secret draws, in the slow suite
LONG = ("heads_row_programs",)


def ids(mutants):
    return [mutant.id for mutant in mutants]


def representatives(mutants, kind):
    """One mutant of each kind, spread over the exercises."""
    groups, taken, found = {}, Counter(), []
    for mutant in mutants:
        groups.setdefault(kind(mutant), []).append(mutant)
    for group in groups.values():
        found.append(min(group, key=lambda mutant: taken[mutant.exercise]))
        taken[found[-1].exercise] += 1
    return found


def mostly_slow(mutants, kind):
    fast = representatives(mutants, kind)
    return [pytest.param(m, id=m.id, marks=[] if m in fast else pytest.mark.slow) for m in mutants]


@pytest.mark.parametrize("mutant", mostly_slow(SINGLE, lambda mutant: (mutant.exercise[:2], mutant.fault)))
def test_a_planted_fault_is_caught_and_named(mutant):
    judgement = judge_mutant(mutant)
    assert judgement.caught, judgement.text
    assert not is_misnamed(mutant, judgement), judgement.text
    assert is_named(mutant, judgement) or mutant.unnamed, judgement.text


@pytest.mark.parametrize("mutant", mostly_slow(TWO_FAULTS, lambda mutant: mutant.exercise))
def test_two_faults_are_caught_and_not_misnamed(mutant):
    judgement = judge_mutant(mutant)
    assert judgement.caught, judgement.text
    assert not is_misnamed(mutant, judgement), judgement.text


@pytest.mark.parametrize("mutant", EQUIVALENT, ids=ids(EQUIVALENT))
def test_what_only_looks_like_a_fault_passes(mutant):
    assert mutant.note, "say why it is right"
    judgement = judge_mutant(mutant)
    assert (judgement.verdict, judgement.named) == ("right", ()), judgement.text


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NAMES])
def test_a_correct_but_unusual_kernel_passes_and_nothing_is_named(name):
    judgement = judge(exercise_of(name), name)
    assert (judgement.verdict, judgement.named) == ("right", ()), judgement.text
    assert bool(judgement.over_budget) == (name in OVER_BUDGET), judgement.over_budget


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mutant", SINGLE + TWO_FAULTS, ids=ids(SINGLE + TWO_FAULTS))
def test_secret_cases_catch_it_too_and_do_not_misname_it(mutant, seed):
    judgement = judge_mutant(mutant, seed)
    assert judgement.caught, judgement.text
    assert not is_misnamed(mutant, judgement), judgement.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_secret_cases_accuse_no_correct_kernel(name, seed):
    judgement = judge(exercise_of(name), name, seed=seed)
    assert (judgement.verdict, judgement.named) == ("right", ()), judgement.text


@pytest.mark.parametrize("lab", ("00", "01", "02", "03", "04", "06"))
def test_each_fault_of_the_bank_has_two_mutants(lab):
    from flashkit.exercises import EXERCISES

    on_a_cpu = [e for id, e in EXERCISES.items() if id.startswith(lab) and e.cuda is None]
    wanted = {fault.name for e in on_a_cpu for fault in e.faults}
    planted = [mutant.fault for mutant in SINGLE if mutant.exercise.startswith(lab)]
    assert {name for name in wanted if planted.count(name) < 2} == set()
    assert set(planted) <= wanted


def test_hardly_any_mutant_may_stay_unnamed():
    assert sum(bool(mutant.unnamed) for mutant in SINGLE) <= 0.05 * len(SINGLE)


def test_every_fault_of_every_lab_has_a_fast_mutant():
    fast = representatives(SINGLE, lambda mutant: (mutant.exercise[:2], mutant.fault))
    assert {(m.exercise[:2], m.fault) for m in fast} == {(m.exercise[:2], m.fault) for m in SINGLE}
    assert {m.exercise for m in fast} == {m.exercise for m in SINGLE}


def test_ids_are_unique():
    everything = ids(SINGLE + TWO_FAULTS + EQUIVALENT)
    assert len(set(everything)) == len(everything)


# ---- the proof can fail


def judgement(verdict="wrong", named=(), caught_by="compare"):
    from tests.labs.judging import Judgement

    return Judgement(verdict, caught_by, tuple(named), False, (), "")


ONE, TWO = Mutant("a", "solution", ()), Mutant("a + b", "solution", ())


@pytest.mark.parametrize(
    ("mutant", "named", "caught_by", "expected"),
    [
        (ONE, (), "compare", False),
        (ONE, ("a",), "compare", False),
        (ONE, ("b",), "compare", True),
        (ONE, ("a", "b"), "compare", False),
        (ONE, ("b", "c"), "compare", True),
        (TWO, (), "compare", False),
        (TWO, ("a", "b"), "compare", False),
        (TWO, ("a",), "compare", True),
        (TWO, ("a",), "meter: outside", False),
        (TWO, ("a", "c"), "compare", True),
        (TWO, ("c",), "meter: outside", True),
    ],
)
def test_what_counts_as_misnamed(mutant, named, caught_by, expected):
    assert is_misnamed(mutant, judgement(named=named, caught_by=caught_by)) is expected


def test_the_last_line_is_bad_when_one_mutant_survives_or_one_variant_is_accused():
    good = {mutant: judgement(named=mutant.faults) for mutant in SINGLE + TWO_FAULTS}
    passing = {name: judgement("right") for name in NAMES}
    assert summary(good, passing)[1]
    assert not summary({**good, SINGLE[0]: judgement("right")}, passing)[1]
    assert not summary({**good, SINGLE[0]: judgement(named=["another"])}, passing)[1]
    assert not summary(good, {**passing, NAMES[0]: judgement("wrong")})[1]
    unnamed = {mutant: judgement() for mutant in SINGLE[: len(SINGLE) // 15]}
    assert not summary({**good, **unnamed}, passing)[1]


@pytest.mark.parametrize(
    ("only", "asked"),
    [
        ((), True),
        (("03",), True),
        (("03.heads",), True),
        (("04", "03.heads"), True),
        (("03.head",), False),
        (("0",), False),
    ],
)
def test_arguments_name_exercises_or_labs(only, asked):
    assert is_asked("03.heads", only) is asked


def test_an_exercise_that_is_none_is_one_line_with_those_that_are(capsys):
    assert main("03.head") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no mutant of 03.head; there are 00.add, " in said


def test_a_part_of_the_matrix_has_a_last_line_of_its_own():
    part = {m: judgement(named=m.faults) for m in SINGLE if m.exercise == "00.add"}
    line, good = summary(part, {})
    assert good and f"{len(part)}/{len(part)} caught" in line
    assert not summary({**part, next(iter(part)): judgement("right")}, {})[1]
