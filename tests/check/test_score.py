"""Points: right answers are the gate, bytes and compilation add theirs, what was not judged gives none."""

from types import SimpleNamespace

import pytest

from flashkit import exercises
from flashkit.check.score import SHARES, Bytes, bytes_requested, points
from flashkit.instruments.record import Traffic

HEADS = exercises.get("03.heads")


@pytest.mark.parametrize(
    ("right", "within", "compiles", "share"),
    [
        (True, True, True, 1.0),
        (True, False, True, 0.85),
        (True, True, False, 0.85),
        (True, True, None, 0.85),
        (True, False, None, 0.70),
        (False, True, True, 0.0),
    ],
)
def test_points_follow_the_shares_behind_the_gate(right, within, compiles, share):
    assert points(40, {"right": right, "bytes": within, "compiles": compiles}) == pytest.approx(40 * share)


def test_the_shares_make_a_whole():
    assert sum(SHARES.values()) == pytest.approx(1)


def requested(exercise, times=1.0, **extra):
    """Observations that ask for ``times`` the budget of every tensor."""
    traffic = [{n: int(b * times) for n, b in exercise.budget(case).items()} | extra for case in exercise.cases]
    outcomes = [SimpleNamespace(traffic={n: Traffic(loaded=b) for n, b in t.items()}) for t in traffic]
    return [SimpleNamespace(case=c, outcome=o) for c, o in zip(exercise.cases, outcomes, strict=True)]


def test_the_budget_is_kept_to_the_byte():
    assert all(row.within for row in bytes_requested(HEADS, requested(HEADS)))
    more = requested(HEADS)
    more[3].outcome.traffic["k"].loaded += 1
    assert [row.tensor for row in bytes_requested(HEADS, more) if not row.within] == ["k"]


def test_a_tensor_without_a_budget_may_not_be_touched():
    (row,) = (row for row in bytes_requested(HEADS, requested(HEADS, scratch=4)) if not row.within)
    assert (row.tensor, row.budget) == ("scratch", 0)


def test_fewer_bytes_than_any_right_kernel_needs_are_not_believed():
    assert not Bytes("k", requested=10, budget=100, least=20).within


def test_the_heads_budget_is_the_formula():
    """Two query tiles of 16 rows read all 32 keys each; B = H = 2, d = d_v = 16, fp32."""
    first = HEADS.budget(HEADS.cases[0])
    assert first == {
        "q": 4 * 32 * 16 * 4,
        "k": 4 * 64 * 16 * 4,
        "v": 4 * 64 * 16 * 4,
        "o": 4 * 32 * 16 * 4,
        "lse": 4 * 32 * 4,
    }


def test_the_causal_budget_counts_the_tiles_up_to_the_diagonal():
    causal = exercises.get("03.causal")
    (case,) = (case for case in causal.cases if case.why == "square, top-left")
    assert causal.budget(case)["k"] == (16 + 32 + 48) * 16 * 4
