"""The record of the forward's benchmark, on a stand-in device: medians, ranges, shares of FA3, and no run is lost."""

import itertools

import pytest

from benchmarks import forward

torch = pytest.importorskip("torch")

SECONDS = {"gluon": 1.0, "triton": 1.25, "cudnn": 1.1, "flash2": 2.0, "fa3": 0.95}


class Device:
    """Calls take what their name says, a little more or less from round to round; what is run is noted."""

    def __init__(self, calls):
        self.names = {id(call): name for name, call in calls.items()}
        self.noise, self.order = itertools.cycle((1.0, 1.02, 0.98)), []

    def run(self, call):
        name = self.names[id(call)]
        self.order.append(name)
        return SECONDS[name] * next(self.noise), 0.0


def participants(off=()):
    x = torch.randn(1, 2, 4, 8)
    plain = {name: (lambda s=(2.0 if name in off else 1.0): x * s) for name in SECONDS}
    return plain | {"fa3": lambda: (x.transpose(1, 2), None)}


def cell(rounds=9):
    calls = participants()
    device = Device(calls)
    (found,) = forward.measure([(128, "full", 16384)], lambda *cell: calls, lambda: device, rounds)
    return found, device


def test_every_participant_runs_in_every_round_in_another_order():
    found, device = cell()
    assert all(len(seconds) == 9 for seconds in found["seconds"].values())
    rounds = [tuple(device.order[at : at + 5]) for at in range(len(device.order) - 45, len(device.order), 5)]
    assert all(sorted(names) == sorted(SECONDS) for names in rounds) and len(set(rounds)) > 4


def test_a_cell_has_medians_ranges_and_shares():
    row = forward.rates(128, "full", 16384, cell()[0]["seconds"])
    flop = 4 * 16384 * 16384 * 2048
    assert row["gluon"] == pytest.approx(flop / 1e12, rel=0.03)
    assert row["gluon_range"][0] < row["gluon"] < row["gluon_range"][1] or row["gluon_range"][0] <= row["gluon"]
    assert row["over_fa3"]["gluon"]["value"] == pytest.approx(0.95, abs=0.03)
    half = forward.rates(128, "causal", 16384, {"gluon": [1.0]})
    assert half["gluon"] == pytest.approx(flop / 2e12, rel=0.01) and "over_fa3" not in half


def test_wrong_answers_are_not_timed():
    calls = participants(off=("triton",))
    with pytest.raises(RuntimeError, match="triton"):
        forward.measure([(128, "full", 16384)], lambda *cell: calls, lambda: Device(calls), 3)


def test_the_record_holds_every_run_and_the_goals():
    run = {"commit": "a", "cells": [cell()[0]], "ladder": []}
    first = forward.record(run, None)
    second = forward.record({**run, "commit": "b"}, first)
    assert [r["commit"] for r in second["runs"]] == ["a", "b"] and second["commit"] == "b"
    assert second["runs"][0]["cells"][0]["seconds"]["gluon"]
    assert set(second["verdicts"]) == set(forward.GOALS)
    assert second["verdicts"]["gluon in each cell"]["met"]
    assert {"head_dim", "mask", "n", "gluon", "triton", "fa3", "cudnn", "flash2"} <= set(second["rows"][0])


def test_without_fa3_nothing_is_claimed():
    assert forward.verdicts([forward.rates(128, "full", 16384, {"gluon": [1.0]})]) == {}
