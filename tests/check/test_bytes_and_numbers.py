"""Budgets of labs 01 and 02 are exact, a trip too many costs the bytes' share, numbers are reported as numbers."""

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import check, conclude, observe
from flashkit.exercises.hbm_traffic import NAIVE_ATTENTION
from flashkit.runtime.runner import run
from reference import traffic
from tests.labs.kernels import load

METERED = ("01.softmax", "01.naive_attention", "02.softmax", "02.weighted_sum")
NUMBERS = ("01.naive_bytes", "01.flash_bytes", "02.merge")


def judged(id, *patch):
    exercise, function = exercises.get(id), load(id, "solution", patch)
    observations, _ = observe(exercise, function, exercise.cases, compile=False)
    return conclude(exercise, observations, [], lambda c, **o: run(function, exercise.call(c), show=False, **o))


@pytest.mark.parametrize("id", METERED)
def test_the_solution_asks_for_exactly_its_budget_in_every_case(id):
    exercise, function = exercises.get(id), load(id, "solution")
    for case in exercise.cases:
        traffic_of = run(function, exercise.call(case), show=False).traffic
        budget, moved = exercise.budget(case), dict.fromkeys(exercise.budget(case), 0)
        for name, t in traffic_of.items():
            moved[name if name in budget else "*"] += t.loaded + t.stored + t.atomic
        assert moved == budget, case.describe()


def test_the_budgets_are_the_ledgers():
    for case in exercises.get("01.softmax").cases:
        elements, size = case.sizes["rows"] * case.sizes["columns"], {"fp32": 4, "fp16": 2}[case.dtype]
        assert sum(exercises.get("01.softmax").budget(case).values()) == 2 * elements * size
    for case in NAIVE_ATTENTION.cases:
        s, o, size = case.sizes, case.options, {"fp32": 4, "fp16": 2}[case.dtype]
        shape = traffic.Shape(s["N_q"], s["N_k"], s["d"], s["d_v"], o["block_q"], o["block_k"], size)
        assert sum(NAIVE_ATTENTION.budget(case).values()) == traffic.total(traffic.naive(shape))


ROW = 'x = tl.load(x_ptr + row * stride_x + lanes, mask=lanes < columns, other=float("-inf")).to(tl.float32)'
SCORES = 'S = tl.load(s_ptr + row * stride_sn + keys, mask=keys < N_k, other=float("-inf")).to(tl.float32)'
V_J = "V_j = tl.load(v_ptr + keys[:, None] * stride_vn + cols_v[None, :], mask=keys[:, None] < N_k, other=0.0)"


@pytest.mark.parametrize(
    ("id", "patch", "tensor"),
    [
        ("01.softmax", (ROW, f"m = tl.max({ROW[4:]}, 0)\n    l = tl.sum(tl.exp({ROW[4:]} - m), 0)\n    {ROW}"), "x"),
        ("01.naive_attention", (SCORES, f"{SCORES}\n    S = tl.maximum(S, {SCORES[4:]})"), "*"),
        ("01.naive_attention", (V_J, f"{V_J}\n        V_j = 0.5 * (V_j + {V_J[6:]}).to(V_j.dtype)"), "v"),
    ],
    ids=["three-reads-of-the-row", "s-read-twice", "v-read-twice"],
)
def test_a_trip_too_many_is_right_and_costs_the_bytes_share(id, patch, tensor):
    report = judged(id, patch)
    assert report.verdict == "right" and not report.parts["bytes"]
    assert [row.tensor for row in report.bytes if not row.within] == [tensor]
    assert f"over budget: {tensor} " in str(report)


@pytest.mark.parametrize("id", NUMBERS)
def test_a_number_is_reported_without_kernels_bytes_or_gpus(id):
    report = check(id, load(id, "solution"), show=False)
    assert report.verdict == "right" and report.points == report.out_of and report.pending == []
    for word in ("GPU", "compile", "budget", "layout", "fp32,", "Not judged"):
        assert word not in str(report)


@pytest.mark.parametrize("id", NUMBERS)
def test_a_wrong_number_shows_its_case_without_a_layout(id):
    exercise = exercises.get(id)
    report = check(id, lambda *args, **options: (1.0, 1.0, 1.0)[: len(exercise.oracle(exercise.cases[0]))], show=False)
    assert report.verdict == "wrong" and report.points == 0
    assert "layout" not in str(report) and "values" not in str(report)
