"""The acceptance rule: honest rounding passes, NaN never does, infinities must stand where they belong."""

from dataclasses import replace

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check.compare import Judge, judge
from flashkit.exercises import backward as lab_04
from flashkit.exercises import rows
from flashkit.exercises.inputs import attention_inputs
from flashkit.runtime import runner
from reference import backward, forward
from reference.shapes import FLOAT32
from tests.labs.kernels import load

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


# ---- right kernels that add in another order: secret draws that had refused them ---------------------------


def last_coordinate_first(tile):
    """The scores of a tile as a loop over d makes them, from its end."""
    S = np.zeros((len(tile.rows), len(tile.keys)), np.float32)
    for q, k in zip(tile.Q_i.T[::-1], tile.K_j.T[::-1], strict=True):
        S += q[:, None] * k
    return S * np.float32(tile.problem.scale)


def attention(case):
    steps = replace(forward.STEPS, score=last_coordinate_first)
    o, lse = forward.multi_head(
        *attention_inputs(case), lambda p: forward.tiled(p, steps), arithmetic=FLOAT32, **case.options
    )
    return {"o": o, "lse": lse}


def gradients(case):
    def probabilities(tile, lse):
        return np.exp(forward.mask(last_coordinate_first(tile), tile) - forward.finite(lse)[:, None])

    steps, x = replace(backward.STEPS, probabilities=probabilities), lab_04.arguments(case)
    found = backward.multi_head(
        x["q"], x["k"], x["v"], x["do"], lambda *head: backward.tiled(*head, steps), (x["o"], x["lse"]),
        arithmetic=FLOAT32, **case.options,
    )  # fmt: skip
    return {**attention(case), **dict(zip(("dq", "dk", "dv"), found, strict=True))}


def whole_rows(case):
    """Weighted sums of whole rows, one column after another."""
    s, v = (x.astype(np.float32) for x in (rows.scores(case), rows.values(case)))
    e = np.exp(s - s.max(axis=1, keepdims=True))
    l = np.cumsum(e, axis=1)[:, -1:]
    return {"o": np.cumsum(e[:, :, None] * v, axis=1)[:, -1] / l, "y": e / l}


OTHER_ORDERS = (
    ("01.naive_attention", 15, "scores that overflow exp", attention),
    ("02.weighted_sum", 112, "a tail", whole_rows),
    ("02.cuda", 8, "a tail", whole_rows),
    ("03.tile", 14, "scores that overflow exp", attention),
    ("03.heads", 120, "scores that overflow exp", attention),
    ("04.dkdv", 121, "scores that overflow exp", gradients),
    ("04.dq", 49, "scores that overflow exp", gradients),
    ("04.attention", 7, "scores that overflow exp", gradients),
    ("05.forward", 73, "scores that overflow exp", attention),
)


def drawn(id, seed, why):
    exercise = exercises.get(id)
    return exercise, next(case for case in exercise.draw(seed) if case.why == why)


@pytest.mark.parametrize(("id", "seed", "why", "kernel"), OTHER_ORDERS, ids=[id for id, *_ in OTHER_ORDERS])
def test_another_order_of_additions_uses_seven_tenths_of_what_is_allowed_at_most(id, seed, why, kernel):
    exercise, case = drawn(id, seed, why)
    judged, came = judge(exercise, case), kernel(case)
    for name, right in judged.reference.items():
        error = np.abs(came[name].reshape(right.shape) - right)
        assert (error <= 0.7 * judged.allowed[name]).all(), (name, (error / judged.allowed[name]).max())


def test_the_course_s_own_single_row_is_right():
    """Sixteen numbers of which the honest runs lost next to nothing."""
    exercise, case = drawn("03.causal", 1623039655, "decode: one query sees every key")
    outcome = runner.run(load("03.causal", "solution"), exercise.call(case))
    assert judge(exercise, case).agrees(outcome.outputs)


def test_in_fp16_q_may_be_scaled_first_with_or_without_log2_e():
    exercise, case = drawn("03.heads", 16, "half precision, gaps between rows, heads and batches")
    q, k, v = attention_inputs(case)
    for factor in (1.0, np.log2(np.e)):
        rounded = (q * case.options["scale"] * factor).astype(np.float16).astype(float)
        o, lse = forward.multi_head(rounded, k, v, **{**case.options, "scale": 1 / factor})
        judged = judge(exercise, case)
        assert (np.abs(lse - judged.reference["lse"]) <= 0.6 * judged.allowed["lse"]).all()
        assert judged.agrees({"o": o, "lse": lse})


@pytest.mark.parametrize("id", ["02.weighted_sum", "03.tile", "03.rows", "03.heads", "05.forward"])
def test_where_no_sum_has_an_order_the_tolerance_stays_small(id):
    """Every score is one product, -2**31 exactly: a share of it would allow anything."""
    exercise = exercises.get(id)
    (case,) = (case for case in exercise.cases if case.values == "trap")
    assert judge(exercise, case).allowed["o"].max() < 1e-6


def in_tf32(x):
    """The nearest numbers with 10 bits after the point."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


@pytest.mark.parametrize(
    "id", ["01.naive_attention", "03.tile", "03.rows", "03.causal", "03.heads", "04.dkdv", "04.dq"]
)
def test_products_of_inputs_in_tf32_are_refused_in_every_fp32_case(id):
    exercise = exercises.get(id)
    cases = [c for c in exercise.cases if c.dtype == "fp32" and c.values == "normal" and c.sizes["N_k"] > 1]
    for case in cases:
        q, k, v = (in_tf32(x) for x in attention_inputs(case))
        came = dict(zip(("o", "lse"), forward.multi_head(q, k, v, **case.options), strict=True))
        if id.startswith("04"):
            found = backward.multi_head(q, k, v, lab_04.arguments(case)["do"], **case.options)
            came = dict(zip(("dq", "dk", "dv"), found, strict=True))
        judged = judge(exercise, case)
        for name in {"o", "dq", "dk", "dv"} & {*judged.reference}:
            right = judged.reference[name]
            error = np.max(np.abs(came[name].reshape(right.shape) - right))
            assert error > 20 * judged.allowed[name].max(), case.describe()
