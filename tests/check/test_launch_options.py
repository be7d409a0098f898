"""05.forward: warps and stages must reach the launch, by whatever way; a launch that ignores them is told so."""

from dataclasses import replace
from functools import cache

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import conclude, launch_options, observe
from flashkit.runtime.call import Outcome
from tests.labs.kernels import base_source, load

FORWARD = exercises.get("05.forward")
CASES = FORWARD.cases[-3:]
OPTIONS = "num_warps=warps, num_stages=stages"
GRID = "    grid = (triton.cdiv(N_q, block_q), B * H)\n"
LAUNCH = "    forward_kernel[grid](\n"
SIGNATURE = "    d: tl.constexpr, d_v: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr,\n"


@cache
def observed(*patch):
    return observe(FORWARD, load("05.forward", "solution", patch), CASES, compile=False)[0]


def names(observations):
    return [option.option for option in launch_options.ignored(FORWARD, observations)]


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ("num_warps=8, num_stages=stages", ["warps"]),
        ("num_stages=stages", ["warps"]),
        ("num_warps=warps, num_stages=3", ["stages"]),
        ("num_warps=warps, num_stages=warps // 2", ["stages"]),
        ("num_warps=4, num_stages=2", ["warps", "stages"]),
    ],
)
def test_a_launch_that_does_not_depend_on_them_ignores_them(options, ignored):
    assert names(observed((OPTIONS, options))) == ignored


def test_an_argument_that_is_passed_and_changes_nothing_is_ignored_too():
    given = ("q, k, v, o, d**-0.5, H,", "q, k, v, o, d**-0.5, H, warps,")
    assert names(observed(("scale, H, N_q", "scale, H, warps, N_q"), given, (OPTIONS, "num_stages=stages"))) == [
        "warps"
    ]


LEGAL = {
    "a dictionary": ((OPTIONS, "**dict(num_warps=warps, num_stages=stages)"),),
    "a rule of its own": ((OPTIONS, "num_warps=max(1, warps // 2), num_stages=stages + 1"),),
    "stages of the loop alone": (
        (SIGNATURE, SIGNATURE[:-1] + " stages: tl.constexpr,\n"),
        ("range(0, N_k, block_k)", "tl.range(0, N_k, block_k, num_stages=stages)"),
        (OPTIONS, "num_warps=warps, stages=stages"),
    ),
    "autotuned over one configuration": (
        (LAUNCH, "    one = triton.Config({}, num_warps=warps, num_stages=stages)\n"
                 "    triton.autotune(configs=[one], key=['N_k'])(forward_kernel)[grid](\n"),
        (f" {OPTIONS},", ""),
    ),
    "heuristics": (
        (LAUNCH, "    rules = {'num_warps': lambda args: warps, 'num_stages': lambda args: stages}\n"
                 "    triton.heuristics(rules)(forward_kernel)[grid](\n"),
        (f" {OPTIONS},", ""),
    ),
    "no more stages than tiles": ((OPTIONS, "num_warps=warps, num_stages=min(stages, -(-N_k // block_k))"),),
    "a warp for 16 rows at most": ((OPTIONS, "num_warps=min(warps, block_q // 16), num_stages=stages"),),
    "a smaller tile for few rows, and its warps": (
        (GRID, f"    block_q = min(block_q, max(16, triton.next_power_of_2(N_q)))\n{GRID}"),
        (OPTIONS, "num_warps=min(warps, block_q // 16), num_stages=stages"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", LEGAL)
def test_how_they_get_there_is_free(way):
    observations = observed(*LEGAL[way])
    assert all(o.right for o in observations) and names(observations) == []


def test_an_ignored_option_is_said_in_one_sentence_and_costs_the_launchs_share():
    report = conclude(FORWARD, observed((OPTIONS, "num_warps=warps")), [], lambda case, **options: Outcome())
    assert (report.verdict, report.parts["launch"], report.points) == ("right", False, 0.75 * FORWARD.points)
    assert "Your launch ignores `stages`: for 2 and for 3 it is the same kernel" in str(report)
    assert "launch 5 ✗" in str(report) and "Your launch ignores" in report._repr_html_()
    assert "ignores `warps`" not in str(report)


def test_without_two_cases_that_show_it_nothing_is_said():
    some = observed((OPTIONS, "num_warps=4"))[:1]
    assert launch_options.ignored(FORWARD, some) is None
    report = conclude(FORWARD, some, [], lambda case, **options: Outcome())
    assert report.parts["launch"] is None and "ignores" not in str(report)


def claim(warps, text="kernel"):
    return {"source": {"text": text}, "request": {"options": {"num_warps": warps, "num_stages": 2}, "types": {}}}


@pytest.mark.parametrize(
    ("claims", "ignored"),
    [
        ([[claim(4)], [claim(8)], [claim(4)]], ["stages"]),
        ([[claim(4)], [claim(4)], [claim(4)]], ["warps", "stages"]),
        ([[claim(4)], [claim(4, "another")], [claim(4, "third")]], []),
        ([[], [], []], []),
        ([[{}], [{}], [{}]], []),
        ([[{"source": 1, "request": 2}]] * 3, []),
        ([[{"source": {}, "request": {"options": [1], "types": None}}]] * 3, ["warps", "stages"]),
        ([[{"kind": "unavailable", "name": "kernel"}]] * 3, []),
    ],
)
def test_in_a_class_a_childs_claims_are_compared(claims, ignored):
    seen = zip(observed(), claims, strict=True)
    assert names([replace(o, outcome=replace(o.outcome, launches=claimed)) for o, claimed in seen]) == ignored


def test_other_exercises_have_no_such_part():
    assert [e.id for e in exercises.EXERCISES.values() if e.launch_options] == ["05.forward"]
    assert [e.id for e in exercises.EXERCISES.values() if "launch" in e.shares] == ["05.forward"]


@pytest.mark.classroom
def test_a_grader_sees_it_too():
    from flashkit.grading import settings
    from flashkit.grading.judge import Examiner
    from flashkit.grading.room import CodeCell
    from tests.labs.kernels import ROOT

    source = base_source("05.forward", "solution").replace(OPTIONS, "num_warps=4, num_stages=stages")
    with Examiner([CodeCell("cell_0.py", source)], settings.load(ROOT), b"a seed of this test") as examiner:
        report = examiner.examine(FORWARD, 1)().report
    assert (report.verdict, report.parts["launch"], report.points) == ("right", False, 0.9 * FORWARD.points), str(
        report
    )
    assert "ignores `warps`" in str(report)
