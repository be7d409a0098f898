"""The commands for a GPU machine, as far as none is needed: references, bounds, interleaving, and the blind grid."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from benchmarks import backward, confirmation, forward, prediction, records
from benchmarks.cases import BLIND, FIT, TEST
from benchmarks.peer_bound import judged
from benchmarks.prediction import SWEEP
from tests.gpu import __main__ as forward_03
from tests.gpu import cells, hopper, labs

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
TILES = (16, 32)


def rows(shape):
    found = labs.attention_rows(shape, "cpu", TILES)
    if shape.H_q == shape.H_kv:
        found += labs.one_head_rows(shape, "cpu", TILES) + labs.softmax_rows(shape, "cpu", 32)
    return found


def test_all_solutions_of_the_labs_are_within_their_peers_bound():
    found = rows(labs.Shape(16, 16, "fp16")) + rows(labs.Shape(37, 16, "fp16", causal=True, H_q=2, H_kv=1))
    assert all(row["right"] for row in found), [row for row in found if not row["right"]]
    assert {row["exercise"] for row in found} >= {
        "01.softmax",
        "02.weighted_sum",
        "03.tile",
        "03.heads",
        "04.attention",
    }


def test_a_wrong_gradient_is_beyond_the_bound():
    shape = labs.Shape(37, 16, "fp16", causal=True)
    x = labs.inputs(shape, "cpu")
    truth, low = labs.dense(x, shape), labs.peer(x, shape)
    assert judged(low["dk"], truth["dk"], low["dk"])["right"]
    assert not judged(low["dk"] * 1.02, truth["dk"], low["dk"])["right"]
    assert not judged(low["dk"] * float("nan"), truth["dk"], low["dk"])["right"]


def test_the_reference_is_autograds_in_float64():
    shape = labs.Shape(23, 16, "fp16", causal=True, H_q=4, H_kv=2)
    x = {name: t.double() for name, t in labs.inputs(shape, "cpu").items()}
    truth, found = labs.dense(x, shape), labs.peer(x, shape)
    assert all(torch.allclose(truth[name], found[name]) for name in ("o", "dq", "dk", "dv"))


def test_the_grid_reaches_16k_in_both_half_precisions():
    found = labs.shapes()
    assert {shape.dtype for shape in found if shape.N == 16384} == {"fp16", "bf16"}
    assert any(shape.H_kv < shape.H_q for shape in found)


def test_the_long_shapes_fall_to_different_children_and_none_is_lost():
    dealt = [[labs.shapes()[int(number)] for number in job] for job in labs.jobs()]
    assert sorted(map(repr, sum(dealt, []))) == sorted(map(repr, labs.shapes()))
    assert max(sum(shape.N == 16384 for shape in job) for job in dealt) <= 2


def test_a_record_of_half_a_run_is_a_record():
    assert labs.record_of([], [])["outputs"] == 0
    row = {"N": 77, "exercise": "03.rows", "error": 3.0, "peer": 2.0, "right": False}
    found = labs.record_of([row], [{"N": 16, "ended": "It hangs"}])
    assert found["wrong"] == [row] and found["worst_ratio_to_peer"] == 1.5 and found["ended"]


@pytest.mark.parametrize("causal", [False, True])
def test_the_teaching_backward_is_right_beside_a_library(causal):
    found = backward.correctness(causal, "cpu", (1, 1, 70, 16), torch.float16)
    assert set(found) == {"dq", "dk", "dv"} and all(row["right"] for row in found.values())


class Clock:
    """A device on which a call gives its own seconds."""

    def __init__(self):
        self.order = []

    def run(self, call):
        self.order.append(call)
        return call(), call()


def test_three_backwards_are_interleaved_and_set_side_by_side():
    clock = Clock()
    calls = {"teaching": lambda: 5e-3, "cudnn": lambda: 3.5e-3, "flash2": lambda: 6e-3}
    times = backward.interleaved(calls, clock, rounds=4, seed=0)
    turns = [clock.order[15 + 3 * n : 18 + 3 * n] for n in range(4)]
    assert all(set(turn) == set(calls.values()) for turn in turns) and len({tuple(turn) for turn in turns}) > 1
    result = backward.told(False, times)
    assert result["speed_over"]["cudnn"]["value"] == pytest.approx(0.7) and result["passed"]
    assert result["tflops"]["teaching"] == pytest.approx(10 * 16 * 16384**2 * 128 / 5e-3 / 1e12, rel=1e-3)
    slow = backward.told(False, {**times, "flash2": [4e-3] * 4})
    assert not slow["passed"]


def test_a_backward_record_passes_when_all_of_it_is_there():
    record = {"correctness": {}, "results": [], "ended": []}
    for mask in backward.MASKS:
        backward.add(record, {"case": f"answers {mask}", "found": {"dq": {"right": True}}})
        assert not backward.passed(record)
        backward.add(record, {"case": f"times {mask}", "found": {"passed": True}})
    assert backward.passed(record)
    backward.add(record, {"case": "times full", "ended": "It hangs"})
    assert record["ended"] and len(record["results"]) == 2
    record["correctness"]["full"]["dq"]["right"] = False
    assert not backward.passed(record)


def test_no_blind_pair_was_measured_before():
    known = {(c.kernel, c.shape, c.tile) for c in (*FIT, *TEST, *(case for case, _ in SWEEP))}
    kept = json.loads((RESULTS / "prediction-h200.json").read_text())
    known |= {(p["kernel"], p["shape"], p["tile"]) for p in (*kept["pairs"], *kept["sweep"])}
    blind = {(c.kernel, c.shape, c.tile) for c in BLIND}
    assert len(blind) == len(BLIND) >= 40 and not blind & known
    assert {c.kernel for c in BLIND} == {c.kernel for c in TEST}


def test_a_confirmation_counts_its_pairs_and_lists_what_did_not_run():
    case = next(case for case in BLIND if case.kernel == "row_dot")
    measured = {"case": asdict(case), "options": {}, "resources": [{"spills": 0}], "trouble": ""}
    measured |= {"seconds": 1e-4, "all_seconds": [0.9e-4, 1.1e-4]}
    failed = {"case": asdict(BLIND[0]), "options": {}, "resources": [], "trouble": "OutOfResources", "all_seconds": []}
    found = confirmation.record([measured, failed])
    assert found["held_out"] == 1 and len(found["not_run"]) == 1 and found["pairs"][0]["role"] == "blind"
    assert found["median_error"] == abs(found["pairs"][0]["error"])


@pytest.mark.parametrize(
    "command",
    (forward_03, labs, hopper, cells, forward, backward, confirmation, prediction),
    ids=lambda it: it.__name__,
)
def test_without_a_gpu_a_command_ends_with_one_line(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="PyTorch finds no GPU here, so nothing was run") as ended:
        command.main()
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize("command", (hopper, forward), ids=lambda it: it.__name__)
def test_on_another_gpu_than_a_hopper_nothing_is_called_a_success(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(SystemExit, match="This GPU is no Hopper") as ended:
        command.main()
    assert "\n" not in str(ended.value)


def test_a_machine_without_git_says_what_its_copy_is_of(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COMMIT", "abc")
    assert records.commit() == "abc"
    monkeypatch.delenv("COMMIT")
    assert records.commit() == ""


def test_every_cell_that_only_a_gpu_judges_is_asked_and_here_it_says_why_not():
    assert {"02.cuda", "05.tuned", "07.cp_async", "07.gluon"} <= set(cells.cells())
    found = cells.one("07.gluon")
    assert found["points"] == 0 and found["out_of"] == 24 and "not judged here" in found["report"]


def test_a_record_of_some_kernels_of_03_is_a_record():
    todo, left = forward_03.jobs()
    assert todo[0][0] == "solution" and left
    rows = [{"right": True}]
    found = forward_03.record_of([{"name": name, "ended": "", "rows": rows} for name in ("solution", "mutant a")], left)
    assert found["right"] == ["solution"] and not found["failed"]
    assert found["mutants_not_seen_on_this_gpu"] == ["mutant a"] and found["mutants_caught"] == 0
    assert forward_03.record_of([], left)["mutants_run"] == 0
