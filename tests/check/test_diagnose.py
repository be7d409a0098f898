"""Naming: only what explains every case, and most of the error, is named; findings of the meter have their say last."""

from dataclasses import replace

import numpy as np

from flashkit import exercises
from flashkit.check.compare import judge
from flashkit.check.diagnose import Observation, diagnose
from flashkit.instruments.record import Finding
from flashkit.runtime.call import Outcome, Problem

ROWS = exercises.get("03.rows")


def fault(name, exercise=ROWS):
    (found,) = (f for f in exercise.faults if f.name == name)
    return found


def observed(exercise, outputs_of):
    return [Observation(case, judge(exercise, case), Outcome(outputs=outputs_of(case))) for case in exercise.cases]


def told(observations, exercise=ROWS, rerun=None):
    with np.errstate(all="ignore"):
        return diagnose(exercise, observations, rerun)


def predicted(name, exercise=ROWS, number=0):
    return lambda case: exercise.wrong(case, fault(name, exercise).variants[number])


def test_what_a_mistake_predicts_on_every_case_is_named():
    for name in ("own-max", "division-forgotten", "scale-missing", "tail-mask-missing"):
        assert told(observed(ROWS, predicted(name))).name == name


def test_one_case_that_does_not_fit_and_nothing_is_named():
    observations = observed(ROWS, predicted("division-forgotten"))
    observations[3].outcome.outputs["o"] = observations[3].outcome.outputs["o"] + 0.5
    assert told(observations).faults == ()


def test_a_right_case_that_the_mistake_would_spoil_and_nothing_is_named():
    observations = observed(ROWS, predicted("division-forgotten"))
    observations[3].outcome.outputs = dict(observations[3].judge.reference)
    assert told(observations).faults == ()


def test_a_small_error_is_not_called_a_rounding_mistake():
    heads = exercises.get("03.heads")

    def slightly_off(case):
        right = heads.oracle(case)
        return {**right, "lse": right["lse"] - (3e-4 if case.values == "alike" else 0.0)}

    assert told(observed(heads, slightly_off), heads).faults == ()
    assert told(observed(heads, predicted("low-precision-sum", heads)), heads).name == "low-precision-sum"


def test_two_that_fit_are_both_told():
    twin = replace(fault("own-max"), name="twin", sentence="its twin was made")
    exercise = replace(ROWS, faults=(*ROWS.faults, twin))
    diagnosis = told(observed(exercise, predicted("own-max")), exercise)
    assert {f.name for f in diagnosis.faults} == {"own-max", "twin"} and diagnosis.name == ""
    assert diagnosis.sentence().startswith("It is one of these: ")


def stopped(case, tensor="k", row=None, lineno=7):
    index = (case.sizes["N_k"] if row is None else row, 0)
    finding = Finding("outside", tensor, index, lineno=lineno, access="load")
    return Outcome(problem=Problem("crashed", "", finding=finding))


def with_stops(stop):
    def outcome(case):
        return stop(case) if case.sizes["N_k"] % case.options["block_k"] else Outcome(outputs=dict(ROWS.oracle(case)))

    return [Observation(case, judge(ROWS, case), outcome(case)) for case in ROWS.cases]


def test_a_finding_past_the_last_key_is_a_missing_mask():
    assert told(with_stops(stopped)).name == "tail-load-unmasked"
    assert told(with_stops(lambda case: stopped(case, "v"))).name == "v-tail-unmasked"


def test_a_finding_far_away_has_no_name():
    assert told(with_stops(lambda case: stopped(case, row=10_000))).faults == ()


def test_findings_of_two_kinds_have_no_name():
    stops = iter(["k", "v"] * len(ROWS.cases))
    assert told(with_stops(lambda case: stopped(case, next(stops)))).faults == ()


def test_undefined_lanes_that_matter_are_named_with_what_is_left():
    hint = Finding("undefined", "v", (0, 0))

    def spoilt(case):
        return {"o": np.full_like(ROWS.oracle(case)["o"], np.nan)}

    def observations():
        seen = observed(ROWS, spoilt)
        for o in seen:
            o.outcome.undefined = [hint]
        return seen

    alone = told(observations(), rerun=lambda case: Outcome(outputs=dict(ROWS.oracle(case))))
    assert alone.name == "other-missing"
    with_another = told(observations(), rerun=lambda case: Outcome(outputs=predicted("own-max")(case)))
    assert [f.name for f in with_another.faults] == ["other-missing", "own-max"] and with_another.together
    assert with_another.sentence().startswith("There is more than one mistake: ") and with_another.name == ""


def test_undefined_lanes_that_do_not_matter_are_not_named():
    seen = observed(ROWS, predicted("own-max"))
    for o in seen:
        o.outcome.undefined = [Finding("undefined", "k", (0, 0))]
    assert told(seen, rerun=lambda case: Outcome(outputs=predicted("own-max")(case))).name == "own-max"
