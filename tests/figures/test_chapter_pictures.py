"""The numbers in the pictures are the oracles': each is compared with a trace made here."""

import numpy as np
import pytest

from flashkit.figures import (
    byte_walk,
    example,
    gradient_paths,
    loop_orders,
    loop_ownership,
    online_softmax,
    roofline,
    row_state,
    tile_walk,
)
from flashkit.figures.example import dO
from flashkit.figures.ledger import size
from flashkit.figures.scene import number
from reference import backward, traffic
from reference.forward import Problem, Trace, dense, tiled
from reference.machines import MACHINES
from reference.online_softmax import Trace as BlockTrace
from reference.online_softmax import fold


def random_problem(rows=11, keys=13, d_v=2, **options):
    rng = np.random.default_rng(5)
    return Problem(rng.normal(size=(rows, 3)), rng.normal(size=(keys, 3)), rng.normal(size=(keys, d_v)), **options)


PROBLEMS = {
    "example": example(),
    "full": example(causal=False),
    "unequal tiles": random_problem(causal=True, offset=2, block_q=3, block_k=4),
    "decode": random_problem(rows=1, causal=True, offset=12, block_q=1, block_k=4),
}


def texts(frame, start):
    return {name: shape.text for name, shape in frame.shapes.items() if name.startswith(start) and shape.text}


# ---- chapter 3 ----


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_tile_walk_shows_the_trace_in_its_order(problem):
    trace = Trace()
    O, _ = tiled(problem, trace=trace)
    frames = [frame for frame in tile_walk(problem).scene.frames if frame.caption.startswith("Update")]
    assert len(frames) == len(trace.events)
    for frame, event in zip(frames, trace.events, strict=True):
        assert frame[f"tile[{event.i},{event.j}]"].stroke == 4
        for at, row in enumerate(event.rows):
            if f"m[{row}]" in frame.shapes:
                assert frame[f"m[{row}]"].text == number(event.m[at])
                assert frame[f"l[{row}]"].text == number(event.l[at])
                assert frame[f"acc[{row}]"].text == ", ".join(number(v) for v in event.acc[at])
    last = tile_walk(problem).scene.frames[-1]
    for name, text in texts(last, "O[").items():
        assert text == ", ".join(number(v) for v in O[int(name[2:-1])])


def test_tile_walk_shows_every_score_before_and_after_the_mask():
    problem, trace = example(), Trace()
    tiled(problem, trace=trace)
    event = trace.events[0]
    scored, masked = tile_walk(problem).scene.frames[2:4]
    S = problem.Q @ problem.K.T * problem.scale
    for row in event.rows:
        for key in event.keys:
            assert scored[f"S[{row},{key}]"].text == number(S[row, key], 1)
            assert masked[f"S[{row},{key}]"].text == number(event.S[row, key], 1)


def test_tile_walk_marks_masked_padding_and_skipped_differently():
    last = tile_walk().scene.frames[-1]
    assert last["S[0,1]"].hatch == "diagonal"
    assert last["S[0,4]"].hatch == "cross"
    assert last["S[0,5]"].hatch == "dots" and last["S[0,5]"].dashed
    assert last["S[4,4]"].hatch == ""


def test_tile_walk_skips_what_the_oracle_skips():
    captions = [frame.caption for frame in tile_walk().scene.frames]
    assert any(caption.startswith("Tile (0, 1): past the diagonal") for caption in captions)
    assert not any("past the diagonal" in frame.caption for frame in tile_walk(example(causal=False)).scene.frames)


def test_tile_walk_of_a_long_sequence_draws_tiles_not_cells():
    frames = tile_walk(random_problem(100, 130, causal=True, offset=30, block_q=16, block_k=32)).scene.frames
    assert max(len(frame.shapes) for frame in frames) < 120


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_loop_orders_end_at_the_ledger(problem):
    last = loop_orders(problem, itemsize=2).scene.frames[-1]
    p = problem
    shape = traffic.Shape(
        len(p.Q), len(p.K), p.Q.shape[1], p.V.shape[1], p.block_q, p.block_k, causal=p.causal, offset=p.offset
    )
    for name, ledger in (("FA1", traffic.fa1(shape)), ("FA2", traffic.fa2(shape))):
        sums = traffic.by_tensor(ledger)
        if name == "FA1":
            sums["l, m"] = sums.pop("l") + sums.pop("m")
        for tensor, nbytes in sums.items():
            symbol = tensor.upper() if tensor in "qkvo" else tensor
            assert last[f"{name} total {symbol}"].text.strip("→← ") == f"{nbytes:,}", (name, tensor)
        assert last[f"{name} total sum"].text == f"{traffic.total(ledger):,}"


def test_loop_orders_visit_in_the_papers_orders():
    last = loop_orders().scene.frames[-1]
    order = [["1", "3"], ["2", "4"]], [["1", "2"], ["3", "4"]]
    for name, visits in zip(("FA1", "FA2"), order, strict=True):
        assert [[last[f"{name} tile[{i},{j}]"].text for j in (0, 1)] for i in (0, 1)] == visits


@pytest.mark.parametrize("row", range(5))
def test_row_state_shows_the_rows_trace(row):
    problem, trace = example(), Trace()
    O, lse = tiled(problem, trace=trace)
    events = [event for event in trace.events if row in event.rows]
    last = row_state(problem, row).scene.frames[-1]
    for block, event in enumerate(events):
        at = row - event.rows[0]
        for name, values in (
            ("S", event.S[at]),
            ("P", event.P[at]),
            ("m", event.m[at : at + 1]),
            ("acc", event.acc[at]),
        ):
            assert [last[f"{name}[{block}][{n}]"].text for n in range(len(values))] == [number(v) for v in values]
        m_old = events[block - 1].m[at] if block else -np.inf
        assert last[f"alpha[{block}][0]"].text == number(np.exp(m_old - event.m[at]))
    assert last["O"].text == f"O = ({', '.join(number(v, 4) for v in O[row])})"
    assert last["lse"].text == f"lse = {number(lse[row], 4)}"


def test_row_state_refuses_a_row_that_is_not_there():
    with pytest.raises(ValueError, match="row must be 0 to 4, but is 5"):
        row_state(row=5)


# ---- chapter 1 ----


@pytest.mark.parametrize("n, N", list(enumerate((1024, 4096, 16384))))
@pytest.mark.parametrize("b, block_q", list(enumerate((64, 128, 256))))
def test_byte_walk_ends_at_the_ledger(n, N, b, block_q):
    last = byte_walk().variants[n, b].frames[-1]
    shape = traffic.Shape(N, N, 64, 64, block_q, 128)
    for name, ledger in (("naive", traffic.naive(shape)), ("fused", traffic.fa2(shape))):
        assert last[f"{name} total"].text == f"total {size(traffic.total(ledger))}"
        for tensor in ("q", "k", "v", "s", "p", "o", "lse"):
            symbol = "lse" if tensor == "lse" else tensor.upper()
            for direction, column in (("load", "read"), ("store", "written")):
                nbytes = sum(getattr(entry, column) for entry in ledger if entry.tensor == tensor)
                assert last[f"{name} {direction} {symbol}"].text == (size(nbytes) if nbytes else "–")


def test_byte_walk_moves_two_gib_of_s_and_p():
    last = byte_walk().scene.frames[-1]
    assert [last[f"naive {d} {t}"].text for d in ("load", "store") for t in "SP"] == ["512 MiB"] * 4
    assert all(last[f"fused {d} {t}"].text == "–" for d in ("load", "store") for t in "SP")


@pytest.mark.parametrize("nbytes, text", [(96, "96 B"), (2048, "2 KiB"), (65536, "64 KiB"), (1.5 * 2**30, "1.5 GiB")])
def test_sizes_are_binary(nbytes, text):
    assert size(nbytes) == text


def test_the_roofs_meet_where_speed_and_memory_balance():
    for gpu in MACHINES:
        assert gpu.attainable(gpu.balance) == pytest.approx(gpu.tflops)
        assert gpu.attainable(gpu.balance / 2) == pytest.approx(gpu.tflops / 2)
    assert round(MACHINES[-1].balance) == 187


def test_the_roofline_counts_the_ledgers_bytes():
    frame = roofline().scene.frames[-1]
    shape = traffic.Shape(65536, 65536, 64, 64, 128, 128)
    flop = 4 * 65536**2 * 64
    assert frame["naive label"].text == f"naive {flop / traffic.total(traffic.naive(shape)):.0f}"
    assert frame["fused label"].text == f"fused {flop / traffic.total(traffic.fa2(shape)):.0f}"


# ---- chapter 2 ----


def test_online_softmax_shows_the_oracles_blocks():
    trace = BlockTrace()
    fold([1, 2, 3, 0], np.array([[2.0], [8], [4], [10]]), 2, trace)
    last = online_softmax().scene.frames[-1]
    for n, block in enumerate(trace.blocks):
        assert last[f"m[{n}][0]"].text == number(block.m)
        assert last[f"l[{n}][0]"].text == number(block.l, 4)
        assert last[f"acc[{n}][0]"].text == number(block.acc[0], 4)
    assert last["l[1][0]"].text == "1.5530"
    assert last["O"].text == "O = 4.9655943" and last["verdict"].text == "right"


def test_every_bug_gives_a_wrong_output_and_averaging_gives_six():
    variants = online_softmax().variants
    for (numbers, bug), scene in variants.items():
        verdict = scene.frames[-1]["verdict"].text
        assert verdict == "right" if bug == 0 else verdict.startswith("wrong"), (numbers, bug)
    averaged = variants[1, 5].frames[-1]
    assert averaged["O"].text == "O = 6.0000000" and "4.0000000 is right" in averaged["verdict"].text


# ---- chapter 4 ----


def test_gradient_paths_reproduce_the_two_worked_examples():
    first, second = (scene.frames[-1] for scene in gradient_paths().variants.values())
    assert [first[f"d{name}"].text for name in ("V0", "V1", "P0", "P1", "S0", "S1")] == [
        "dV0 = 0.50", "dV1 = 1.50", "dP0 = 4.00", "dP1 = 12.00", "dS0 = −1.50", "dS1 = 1.50",
    ]  # fmt: skip
    assert first["D"].text == "D = 10.00" and first["O"].text == "O = 5.00"
    assert [second[f"dS{j}"].text for j in range(3)] == ["dS0 = −1.04", "dS1 = −0.36", "dS2 = 1.40"]
    assert [second[f"dV{j}"].text for j in range(3)] == ["dV0 = 0.40", "dV1 = 0.60", "dV2 = 1.00"]
    assert second["D"].text == "D = 7.20" and second["O"].text == "O = 3.60"


def test_no_arrow_of_the_gradient_paths_crosses_a_box():
    """An arrow that passes behind a box looks as if it ended there."""
    for scene in gradient_paths().variants.values():
        shapes = scene.frames[-1].shapes.values()
        boxes = [s for s in shapes if s.kind == "rect"]
        for arrow in (s for s in shapes if s.kind == "arrow"):
            for at in np.linspace(0.02, 0.98, 49):
                x, y = arrow.x + at * arrow.w, arrow.y + at * arrow.h
                crossed = [b.name for b in boxes if b.x < x < b.x + b.w and b.y < y < b.y + b.h]
                assert crossed == [], arrow.name


OWNED = {"full": example(causal=False, block_q=2, block_k=2), "causal": example(block_q=2, block_k=3)}


@pytest.mark.parametrize("problem", OWNED.values(), ids=OWNED)
@pytest.mark.parametrize("kernel", [0, 1])
def test_loop_ownership_ends_at_the_oracles_gradients(problem, kernel):
    dQ, dK, dV = backward.dense(problem, dO)
    last = loop_ownership(problem).variants[kernel,].frames[-1]
    for name, array, block in (("dQ", dQ, problem.block_q), ("dK", dK, problem.block_k), ("dV", dV, problem.block_k)):
        for at in range(-(-len(array) // block)):
            assert last[f"{name}{at}"].text == f"{name}{at} {number(array[at * block, 0])}"


def test_the_race_loses_parts_of_dq_and_of_nothing_else():
    dQ, dK, _ = backward.dense(OWNED["full"], dO)
    last = loop_ownership().variants[2,].frames[-1]
    assert last["dQ0"].text != f"dQ0 {number(dQ[0, 0])}"
    assert last["dK0"].text == f"dK0 {number(dK[0, 0])}"
    assert "dQ is wrong" in last.caption


def test_dense_and_picture_agree_on_the_example():
    O, _ = dense(example())
    last = tile_walk().scene.frames[-1]
    assert last["O[4]"].text == ", ".join(number(v) for v in O[4])
