"""The record of predicted against measured time: complete, held to its bar, and the grid that was committed."""

import json
import statistics
from pathlib import Path

from benchmarks.cases import FIT, TEST
from flashkit.instruments.roofline import Constants

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
RECORD = json.loads((RESULTS / "prediction-h200.json").read_text())
HELD_OUT = [pair for pair in RECORD["pairs"] if pair["role"] == "test"]


def keys(pairs):
    return {(pair["kernel"], pair["shape"], pair["tile"]) for pair in pairs}


def test_at_most_15_pairs_fit_and_none_of_them_is_held_out():
    fitted = [pair for pair in RECORD["pairs"] if pair["role"] == "fit"]
    assert len(fitted) == len(FIT) <= 15 and not keys(fitted) & keys(HELD_OUT)


def test_the_held_out_pairs_are_the_whole_grid():
    assert len(HELD_OUT) >= 40 and keys(HELD_OUT) == {(case.kernel, case.shape, case.tile) for case in TEST}


def test_the_bar():
    errors = [abs(pair["predicted_ms"] / pair["measured_ms"] - 1) for pair in HELD_OUT]
    assert sum(error <= 0.25 for error in errors) >= 0.8 * len(errors)
    assert statistics.median(errors) < 0.15


def test_the_constants_are_those_in_the_code():
    assert RECORD["constants"] == vars(Constants())


def test_the_timers_control_held_within_3_percent():
    assert all(abs(control["control"]["value"] - 1) <= 0.03 for control in RECORD["controls"])


def test_where_it_comes_from_is_said():
    assert all(RECORD[name] for name in ("gpu", "driver", "torch", "triton", "commit", "date"))


def test_the_models_choice_of_tile_is_near_the_best_for_d_64_and_its_second_for_d_128():
    """Recorded as it is: for d=128 the first choice is 27 % slower than the best of 68, the second 5 %."""
    by_d = {choice["shape"][-2:]: choice for choice in RECORD["sweep_choice"]}
    assert by_d["64"]["slower"] <= 0.05 and by_d["28"]["second_slower"] <= 0.1
    assert all(choice["chosen"]["spills"] == 0 and choice["tried"] > 60 for choice in by_d.values())
