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


def test_the_models_choice_of_tile_is_near_the_best_of_the_sweep():
    """The sweep was known when the model took this form; the note says so."""
    assert all(choice["slower"] <= 0.05 and choice["chosen"]["spills"] == 0 for choice in RECORD["sweep_choice"])
    assert len(RECORD["sweep_choice"]) == 2 and all(choice["tried"] > 60 for choice in RECORD["sweep_choice"])
    assert "neither is held out for this form" in RECORD["note"] and RECORD["first_form"]


def test_chapter_05_tells_the_sweep_as_it_was_measured():

    notebook = json.loads((RESULTS.parents[1] / "notebooks" / "05_tile_budgets.ipynb").read_text())
    text = next("".join(cell["source"]) for cell in notebook["cells"] if cell["id"] == "time-explain")
    tried = [row for row in RECORD["sweep"] if "d=128" in row["shape"]]
    first, large = (
        next(r for r in tried if (r["tile"], r["num_warps"], r["num_stages"]) == choice)
        for choice in (("64x64", 4, 3), ("128x128", 8, 3))
    )
    assert first["measured_ms"] == min(row["measured_ms"] for row in tried)
    predicted, measured = (large[key] / first[key] - 1 for key in ("predicted_ms", "measured_ms"))
    assert f"{len(tried)} of them" in text
    assert f"predicted {predicted:.0%}".replace("%", " %") in text and f"was {measured:.0%}".replace("%", " %") in text
    assert f"{RECORD['within_25_percent']:.0%}".replace("%", " %") in text
    assert f"median error {RECORD['median_error']:.0%}".replace("%", " %") in text
