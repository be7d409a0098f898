"""The record of the teaching backward on an H200 holds its bar, and exp2 in place of exp is what chapter 05 says."""

import json
import statistics

import pytest
import torch

from benchmarks import backward, overlap_order
from flashkit.exercises import lab_cells
from flashkit.instruments import dry_run

RECORD, BEFORE = (
    json.loads((backward.RESULTS / f"backward{name}-h200.json").read_text()) for name in ("", "-exp")
)  # fmt: skip
LOG2E = "1.4426950408889634"


def test_the_record_is_complete_and_holds_its_bar():
    assert all(RECORD[name] for name in ("gpu", "driver", "torch", "triton", "commit", "date"))
    assert backward.passed(RECORD) and not RECORD["ended"]
    for result in RECORD["results"]:
        rounds = {len(seconds) for seconds in result["seconds"].values()}
        told = backward.told(result["causal"], result["seconds"])
        assert rounds == {backward.DRAWS * backward.ROUNDS} and told["passed"]
        assert (told["tflops"], told["speed_over"]) == (result["tflops"], result["speed_over"])


def test_with_exp_it_had_missed_the_bar():
    assert not backward.passed(BEFORE) and len(BEFORE["results"]) == len(backward.MASKS)


def test_chapter_05_tells_what_each_kernel_gained_and_what_saved_instructions_take():
    """Of either kernel alone, in one run; four instructions a weight, at 128 a clock an SM, are no quarter."""
    gained = []
    for times in json.loads((backward.RESULTS / "sweeps-h200.json").read_text())["backward"]["masks"]:
        for kernel, options in (("dq", backward.DQ), ("dkdv", backward.DKDV)):
            launch = f"{options['tile'][0]} {options['tile'][1]} {options['num_warps']} {options['num_stages']}"
            exp, exp2 = (statistics.median(times["seconds"][f"{kernel} {form} {launch}"]) for form in ("base", "E"))
            gained.append((kernel, times["causal"], round(1e3 * (exp - exp2), 1)))
    assert gained == [("dq", False, 1.9), ("dkdv", False, 1.2), ("dq", True, 1.4), ("dkdv", True, 0.2)]
    milliseconds = 1e3 * 4 * backward.H * backward.N**2 / (128 * 132 * 1.9e9)
    chapter = (backward.RESULTS.parents[1] / "notebooks" / "05_tile_budgets.ipynb").read_text()
    assert "dQ gains 1.9 and 1.4 ms, dK and dV 1.2 and 0.2" in chapter and f"take {milliseconds:.1f} ms" in chapter


def machine_code(source: str) -> list[str]:
    """The instructions of dK and dV's kernel for sm_90, 64 x 64 tiles, d = 128."""
    function = lab_cells.load(source, "key_value_gradients")
    tensors = [torch.empty((1, 2, 1024, 128), dtype=torch.bfloat16, device="meta") for _ in range(4)]
    tensors += [torch.empty((1, 2, 1024), device="meta") for _ in range(2)]
    (launch,) = dry_run.launches(function, *tensors, False, 0, 128**-0.5, *backward.DKDV["tile"])
    _, sass = overlap_order.compiled(launch)
    return [line for line in sass.splitlines() if line.lstrip().startswith("/*") and ";" in line]


@pytest.mark.slow
def test_an_exp_is_five_instructions_and_an_exp2_is_one():
    solution = lab_cells.course_source("04.dkdv")
    assert solution.count(LOG2E) == 1 and solution.count("tl.exp2(S") == 1
    exp2, exp = map(machine_code, (solution, solution.replace(LOG2E, "1.0").replace("tl.exp2(S", "tl.exp(S")))
    weights = sum("MUFU.EX2" in line for line in exp2)
    assert weights == sum("MUFU.EX2" in line for line in exp) >= 32
    assert (len(exp) - len(exp2)) / weights == pytest.approx(4, abs=0.5)
