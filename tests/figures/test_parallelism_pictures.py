"""Chapter 6's pictures say what the scheduler's oracle says."""

import pytest

from flashkit.figures import sm_timeline, warp_split
from flashkit.figures.ledger import size
from flashkit.figures.sm_timeline import BINS, LEFT, RIGHT, timelines
from flashkit.figures.warp_split import steps
from reference import schedule
from reference.traffic import Shape

SMALL = Shape(1024, 1024, 128, 128, 128, 128, H_q=3, H_kv=3)
NAMES = ["heads only", "query tiles", "causal, head by head", "causal, longest first"]


def test_the_four_launches_are_the_oracles():
    runs = timelines(SMALL, 5)
    assert list(runs) == NAMES
    assert [run.makespan for run in runs.values()] == [64, 40, 26, 22]
    assert sum(s.end - s.start for s in runs["causal, longest first"].spans) == 3 * sum(range(1, 9))


@pytest.mark.parametrize("number", range(4))
def test_every_program_is_drawn_where_and_as_long_as_it_ran(number):
    figure, run = sm_timeline(), timelines(SMALL, 5)[NAMES[number]]
    last = figure.variants[number,].frames[-1]
    drawn = [shape for name, shape in last.shapes.items() if name.startswith("program")]
    assert len(drawn) == len(run.spans)
    ends = max(64, run.makespan)
    for span, shape in zip(run.spans, drawn, strict=True):
        assert shape.x == pytest.approx(LEFT + (RIGHT - LEFT) * span.start / ends)
        assert shape.w == pytest.approx((RIGHT - LEFT) * (span.end - span.start) / ends)
    assert f"after {run.makespan:g} units; {100 * run.idle:.0f} % of the time is idle" in last.caption


def test_bars_of_many_multiprocessors_hold_all_the_work():
    figure = sm_timeline(H=8, N=4096, block_k=64, sms=132)
    last = figure.variants[2,].frames[-1]
    assert "106 units; 40 % of the time is idle" in last.caption
    bars = [shape.h for name, shape in last.shapes.items() if name.startswith("bar")]
    assert sum(bars) / 320 * 132 * 128 / BINS == pytest.approx(8 * 1056)
    assert figure.variants[0,].frames[-1]["time 4"].text == "2,048" and last["time 4"].text == "128"


def test_other_timelines_can_be_drawn():
    backward = schedule.simulate(schedule.backward_tasks(SMALL), 4)
    assert sm_timeline(runs={"key tiles": backward}).scene.frames[-1].caption.startswith("Key tiles: all 24 programs")


@pytest.mark.parametrize("number, split", [(0, schedule.split_k(128, 64, 128)), (1, schedule.split_q(128, 64, 128))])
def test_warps_end_at_the_splits_bytes(number, split):
    walked = steps(split, 128, 64, 128)
    moved = [(step.operands, step.exchanged) for step in walked]
    assert moved == sorted(moved) and moved[-1] == (split.operands, split.exchanged)
    last = warp_split().variants[number,].frames[-1]
    assert last["operands read value"].text == size(split.operands)
    assert last["exchanged value"].text == size(split.exchanged)
    arrows = [any(name.startswith("exchange ") for name in f.shapes) for f in warp_split().variants[number,].frames]
    assert any(arrows) == (split.name == "split-K")
