"""The blind record: the grid that was committed, the bar, and a model that has not changed since it was measured."""

import json
import statistics
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.cases import BLIND, Case
from benchmarks.report import H200, NOTE
from benchmarks.workloads import works
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.resources import Resources
from flashkit.instruments.roofline import Constants, predict

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RECORD = json.loads((RESULTS / "confirmation-h200.json").read_text())
RAW = json.loads((RESULTS / "confirmation-raw.json").read_text())
PAIRS = RECORD["pairs"]
ERRORS = [abs(pair["predicted_ms"] / pair["measured_ms"] - 1) for pair in PAIRS]


def compiled(kept):
    """What the record's compiler made of one launch."""
    made_of = kept["listing"]
    mixes = [
        Mix(**mix | {"loads": {int(width): n for width, n in mix["loads"].items()}})
        for mix in (made_of["whole"], *made_of["loops"])
    ]
    return Resources(**kept | {"listing": Listing(mixes[0], mixes[1:], made_of["scheduled"])})


def test_the_pairs_are_the_whole_grid_and_all_of_it_ran():
    assert [(pair["kernel"], pair["shape"], pair["tile"]) for pair in PAIRS] == [
        (case.kernel, case.shape, case.tile) for case in BLIND
    ]
    assert {pair["role"] for pair in PAIRS} == {"blind"} and RECORD["not_run"] == []


def test_the_bar():
    assert len(ERRORS) >= 40
    assert sum(error <= 0.25 for error in ERRORS) >= 0.8 * len(ERRORS)
    assert statistics.median(ERRORS) < 0.15


def test_what_the_record_says_in_sum_is_what_its_pairs_say():
    assert RECORD["held_out"] == len(PAIRS)
    assert RECORD["within_25_percent"] == round(sum(error <= 0.25 for error in ERRORS) / len(ERRORS), 3)
    assert RECORD["median_error"] == pytest.approx(statistics.median(ERRORS), abs=2e-3)


def test_the_constants_are_those_in_the_code():
    assert RECORD["constants"] == asdict(Constants())


def test_the_model_still_says_what_it_said_then():
    """A model that changed has seen this grid: it needs a new one, and the record of a new run."""
    for pair, raw in zip(PAIRS, RAW["blind"], strict=True):
        rows, work = map(compiled, raw["resources"]), works(Case(**raw["case"]))
        seconds = sum(predict(row, launch, H200, stages=3).seconds for row, launch in zip(rows, work, strict=True))
        assert pair["predicted_ms"] == pytest.approx(1e3 * seconds, abs=6e-5), raw["case"]
        assert pair["measured_ms"] == pytest.approx(1e3 * statistics.median(raw["all_seconds"]), abs=6e-5)


def test_where_it_comes_from_is_said():
    assert all(RECORD[name] for name in ("gpu", "driver", "torch", "triton", "commit", "date"))
    assert RAW["commit"] == RECORD["commit"]


def test_the_pages_tell_it_as_it_came_out():
    within, median = sum(error <= 0.25 for error in ERRORS), f"{100 * RECORD['median_error']:.0f} %"
    readme, changes, model, chapter = (
        " ".join((ROOT / name).read_text().split())
        for name in ("README.md", "CHANGELOG.md", "flashkit/instruments/roofline.py", "notebooks/05_tile_budgets.ipynb")
    )
    assert f"of {len(PAIRS)} pairs of kernel, shape and tile" in readme
    assert f"{within} are within 25 %, with a median error of {median}" in readme
    assert f"{within} of {len(PAIRS)} pairs within 25 %, median error {median}" in changes
    assert f"{len(PAIRS)} pairs" in chapter
    assert f"{100 * RECORD['within_25_percent']:.0f} % within 25 %, median error {median}" in chapter
    assert f"with {len(PAIRS)} pairs" in model and f"{within} within 25 %, median error {median}" in model


def test_the_older_record_names_this_one():
    older = json.loads((RESULTS / "prediction-h200.json").read_text())
    assert older["note"] == NOTE and "confirmation-h200.json" in NOTE
