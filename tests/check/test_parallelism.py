"""Lab 06 is judged by its schedule: what came back becomes numbers, some of them at most the oracle's."""

import numpy as np
import pytest

from flashkit import exercises
from flashkit.check import check
from flashkit.check.compare import judge
from flashkit.check.diagnose import Observation
from flashkit.exercises.parallelism import bound, observed
from flashkit.exercises.timed import ledger_shape
from flashkit.instruments.schedule import COLUMNS
from flashkit.runtime import wire
from flashkit.runtime.runner import run
from tests.labs.kernels import load

PERSISTENT, CAUSAL, ORDER = (exercises.get(f"06.{name}") for name in ("persistent", "causal", "order"))
CASE = PERSISTENT.cases[0]  # 3 heads of 6 tiles on 4 multiprocessors, one key tile each


def visit(program, tile, asked=0, launched=4, head=0, keys=16):
    size = keys * CASE.sizes["d"] * 4
    place = (program, 0, head, 16 * tile, 16)
    return dict(zip(COLUMNS, (0, *place, size, asked, launched), strict=True))


def seen(*visits, case=CASE):
    rows = np.array([[v[name] for name in COLUMNS] for v in visits], float)
    return {name: float(x) for name, x in observed(case, {"schedule": rows}).items()}


def test_a_program_does_its_tiles_one_after_the_other():
    told = seen(visit(0, 0), visit(0, 1), visit(1, 2))
    assert told == {"repeated": 0, "programs": 4, "walked": 3, "makespan": 2, "settled": 1}


def test_tiles_from_a_counter_go_to_whoever_is_free():
    """The interpreter lets program 0 take them all; a GPU would not."""
    told = seen(*(visit(0, n, asked=1) for n in range(5)))
    assert (told["makespan"], told["settled"]) == (2, 0)


def test_a_counter_asked_once_settles_the_rest():
    told = seen(visit(0, 0, asked=1), *(visit(0, n) for n in range(1, 5)))
    assert (told["makespan"], told["settled"]) == (5, 1)


def test_rows_stored_again_and_programs_too_many_are_counted():
    told = seen(visit(0, 0), visit(1, 0), visit(2, 0, head=1), visit(3, 1, launched=9))
    assert (told["repeated"], told["programs"]) == (16, 9)


@pytest.mark.parametrize(("keys", "again"), [((0, 16), 0), ((0, 0), 16), ((16, 0), 16), ((0, 16, 16), 16)])
def test_zeros_before_the_keys_are_read_are_no_tile_again(keys, again):
    assert seen(*(visit(0, 0, keys=n) for n in keys))["repeated"] == again


def test_a_schedule_that_a_child_made_up_breaks_nothing():
    for value in (np.nan, np.inf, -np.inf, -5.0, 1e300):
        observed(CASE, {"schedule": np.full((3, len(COLUMNS)), value)})
    observed(CASE, {"schedule": np.zeros((0, len(COLUMNS)))})


def test_a_copy_of_the_output_is_not_told_as_tiles_that_nobody_visits():
    copied = load("06.persistent", "solution", (("    return o", "    return o.clone()"),))
    report = check("06.persistent", copied, show=False)
    assert (report.verdict, report.mistake) == ("wrong", "") and "No kernel stored to o[0, 0, 0, 0]" in str(report)


def test_the_schedule_crosses_the_wire_of_the_sandbox():
    call = PERSISTENT.call(CASE)
    sent = wire.read_call(*wire.call_header(call))
    assert sent.returns == call.returns
    outcome = run(load("06.persistent", "solution"), call, show=False)
    arrived = wire.read_outcome(*wire.outcome_header(outcome), call.returns)
    assert arrived.outputs["schedule"].shape == (18, len(COLUMNS))
    assert Observation(CASE, judge(PERSISTENT, CASE), arrived).right
    with pytest.raises(wire.WireError):
        header, arrays = wire.outcome_header(outcome)
        wire.read_outcome(header, arrays | {"schedule": np.zeros((18, 2))}, call.returns)


def test_the_bound_leaves_a_quarter_above_the_least_possible():
    assert bound(CASE) == 5  # 18 equal tiles on 4
    small = CAUSAL.cases[0]
    shape, sms = ledger_shape(small), small.sizes["sms"]
    work = shape.heads * sum(shape.visited(i) for i in range(shape.query_tiles))
    assert bound(small) == pytest.approx(1.25 * max(work / sms, 4))


def longest_first(query_tiles, heads):
    return [(i, h) for i in reversed(range(query_tiles)) for h in range(heads)]


def test_an_order_may_be_better_than_asked_and_is_told_when_it_is_worse():
    assert check("06.order", longest_first, show=False).verdict == "right"
    assert check(
        "06.order", lambda query_tiles, heads: tuple(map(list, longest_first(query_tiles, heads))), show=False
    ).points
    report = check("06.order", lambda query_tiles, heads: longest_first(query_tiles, heads)[::-1], show=False)
    assert report.mistake == "order-naive" and "makespan is" in str(report) and "expected at most" in str(report)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned nothing"),
        (7, "must be a list, but it is a int"),
        ([(1, 2, 3)], "Entry 0 of order must be 2 plain numbers"),
        ([(0, 0), ("0", 0)], "Entry 1 of order must be 2 plain numbers"),
        ([0, 1], "Entry 0 of order must be 2 plain numbers"),
        ([(0, 0)] * 20000, "at most 4,096"),
        ([], "missing is"),
    ],
)
def test_what_is_no_order_is_said(answer, says):
    report = check("06.order", lambda query_tiles, heads: answer, show=False)
    assert report.verdict == "wrong" and says in str(report)
