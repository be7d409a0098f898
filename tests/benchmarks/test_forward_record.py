"""The record of the forward's benchmark, on a stand-in device: medians, ranges, shares of FA3, and no run is lost."""

import itertools
import json

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


def cell(rounds=9, of=(128, "full", 16384)):
    calls = participants()
    device = Device(calls)
    place = dict(zip(("head_dim", "mask", "n"), of, strict=True))
    return {**place, **forward.measure(calls, device, 0, rounds)}, device


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


def test_who_answers_wrong_or_is_refused_is_left_out_and_the_others_are_timed():
    def refused():
        raise RuntimeError("no such kernel")

    calls = participants(off=("triton",)) | {"flash2": refused}
    found = forward.measure(calls, Device(calls), 0, 3)
    assert set(found["seconds"]) == {"gluon", "cudnn", "fa3"}
    assert found["left_out"] == {"triton": "1 from the others' answer", "flash2": "RuntimeError: no such kernel"}
    assert set(forward.rates(128, "full", 16384, found["seconds"])["over_fa3"]) == {"gluon"}


def test_before_each_first_call_the_child_says_whose_it_is(capsys):
    forward.off(participants())
    said = [json.loads(line)["at"] for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "cudnn" and said[-1] == "" and sorted(said[:-1]) == sorted(SECONDS)


def test_a_participant_that_hangs_is_left_out_from_there_on():
    told, asked = [], []

    def run(command, seconds, heard):
        without, cells = command[4].split(","), command[6:]
        asked.append(cells[0])
        for name in cells:
            if "gluon" not in without and name != forward.names()[0]:
                heard({"at": "gluon"})
                return "It hangs: nothing came for 120 s."
            heard({"at": ""})
            heard({"case": name, "without": without})
        return ""

    ended = forward.collect(told.append, run)
    assert [found["case"] for found in told] == forward.names() and asked == forward.names()[:2]
    assert told[0]["without"] == [""] and told[1]["without"] == ["gluon"]
    assert ended == [f"{forward.names()[1]}, gluon: It hangs: nothing came for 120 s."]


def test_a_cell_whose_rounds_end_the_child_is_given_up():
    told = []

    def run(command, seconds, heard):
        if command[6] == forward.names()[0]:
            return "It died with status -11: "
        for name in command[6:]:
            heard({"case": name})
        return ""

    ended = forward.collect(told.append, run)
    assert [found["case"] for found in told] == forward.names()[1:] and "its rounds" in ended[0]


def test_the_record_holds_every_run_and_the_goals():
    run = {"commit": "a", "cells": [cell(of=place)[0] for place in forward.CELLS], "ladder": []}
    first = forward.record(run, None)
    second = forward.record({**run, "commit": "b"}, first)
    assert [r["commit"] for r in second["runs"]] == ["a", "b"] and second["commit"] == "b"
    assert second["runs"][0]["cells"][0]["seconds"]["gluon"]
    assert set(second["verdicts"]) == set(forward.GOALS)
    assert second["verdicts"]["gluon in each cell"]["met"]
    assert {"head_dim", "mask", "n", "gluon", "triton", "fa3", "cudnn", "flash2"} <= set(second["rows"][0])


def test_half_a_run_claims_nothing_and_who_is_missing_in_a_cell_reached_nothing():
    rows = [forward.rates(*place, cell(of=place)[0]["seconds"]) for place in forward.CELLS]
    assert forward.verdicts(rows[:-1]) == {}
    del rows[0]["over_fa3"]["gluon"]
    assert not any(forward.verdicts(rows)[goal]["met"] for goal in list(forward.GOALS)[:2])


def test_without_fa3_nothing_is_claimed():
    assert forward.verdicts([forward.rates(128, "full", 16384, {"gluon": [1.0]})]) == {}
