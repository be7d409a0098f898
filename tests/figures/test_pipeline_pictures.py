"""The pictures of chapter 7 show what the simulator says: spans, phases, tiles, registers."""

import pytest

from flashkit.figures import gantt, register_budget, ring_fill
from reference import warpgroup_registers as registers
from reference.pipeline import Times, simulate
from reference.pipeline_programs import attention, ring

RUNS = {
    "ring": simulate(*ring(5, 2)),
    "ping-pong": simulate(*attention([3, 3], 2, turns=True), Times(2, 3, 3, 1)),
    "mistaken": simulate(
        {"producer": ring(3, 2)[0]["producer"][:-2], "consumer": ring(3, 2)[0]["consumer"]}, ring(3, 2)[1]
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_last_frame_holds_every_span_at_its_time(name):
    run, scene = RUNS[name], gantt(RUNS[name]).scene
    frame = scene.frames[-1]
    end = max(run.makespan, run.diagnosis.time if run.diagnosis else 0)
    scale = (960 - 150 - 12) / end
    drawn = {n: shape for n, shape in frame.shapes.items() if n.startswith("span ")}
    assert len(drawn) == sum(span.start < end for span in run.spans)
    for n, span in enumerate(run.spans):
        if f"span {n}" in drawn:
            assert drawn[f"span {n}"].x == pytest.approx(150 + span.start * scale)
            assert drawn[f"span {n}"].w == pytest.approx((span.end - span.start) * scale)


def test_a_frame_shows_no_future():
    scene = gantt(RUNS["ring"]).scene
    for frame in scene.frames:
        now = frame["now"].x
        assert all(s.x + s.w <= now + 0.01 for n, s in frame.shapes.items() if n.startswith(("span ", "phase ")))


def test_phases_are_those_of_the_flips():
    run, frame = RUNS["ring"], gantt(RUNS["ring"]).scene.frames[-1]
    for barrier in run.program.barriers:
        flips = sum(flip.barrier == barrier for flip in run.flips)
        drawn = [name for name in frame.shapes if name.startswith(f"phase {barrier} ")]
        assert len(drawn) == flips + 1


def test_a_mistake_is_the_last_caption():
    assert gantt(RUNS["mistaken"]).scene.frames[-1].caption.startswith("Trip counts differ: 2 K blocks are copied")


def test_the_ring_shows_each_block_filling_before_it_is_read():
    for scene in ring_fill(6).variants.values():
        seen = [shape.text for frame in scene.frames for n, shape in frame.shapes.items() if n.startswith("tile ")]
        for block in range(6):
            texts = [text for text in seen if text.startswith(f"K{block}\n")]
            assert texts[0].endswith("filling") and texts[-1].endswith("being read")


def test_registers_are_fa3s():
    assert (registers.split(2, 24).consumer, registers.split(3, 32).consumer) == (240, 160)
    assert (registers.split(2).entry, registers.split(3).entry) == (168, 128)
    assert registers.consumer(176, 128) == {"S": 88, "O": 64, "P": 44}
    assert registers.split(2).taken == 64512
    texts = [shape.text for shape in register_budget().variants[(0,)].frames[-1].shapes.values()]
    assert {"S: 88", "O: 64", "P: 44", "24"} <= set(texts)


@pytest.mark.parametrize("producer", [25, 16, 264])
def test_setmaxnreg_takes_no_other_number(producer):
    with pytest.raises(ValueError, match="multiples of 8"):
        registers.split(2, producer)


def test_there_must_be_a_consumer():
    with pytest.raises(ValueError, match="a consumer"):
        registers.split(0)
