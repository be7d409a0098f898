"""What chapter 06 says of the predictions that missed, against the record: a new record needs new sentences."""

import json
from dataclasses import replace

from flashkit.instruments import workload
from reference import schedule
from reference.machines import MACHINE
from reference.traffic import Shape
from tests.notebooks.execution import ROOT

RECORD = json.loads((ROOT / "benchmarks" / "results" / "prediction-h200.json").read_text())
PAIRS = RECORD["pairs"]
TEST = [p for p in PAIRS if p["role"] == "test"]
MISSED = [p for p in TEST if abs(p["error"]) > 0.25]
SMS, GPU = MACHINE["H200"].sms, MACHINE["H200 measured"]
FEW = Shape(8192, 8192, 128, 128, 64, 64, H_q=8, H_kv=8, causal=True)


def tail(shape, blocks):
    return 1 / schedule.simulate(schedule.forward_tasks(shape), SMS * blocks).busy


def test_six_of_56_pairs_miss_and_two_of_them_are_badly_measured():
    assert len(TEST) == 56 and len(MISSED) == 6
    assert sorted(round(p["spread"], 2) for p in MISSED)[-2:] == [0.65, 0.70]
    fifth = [p for p in TEST if abs(p["error"]) > 0.2]
    assert {"softmax", "row_dot", "forward"} <= {p["kernel"] for p in fifth}
    assert "blind" in RECORD["note"]


def test_one_shape_has_a_tail_and_the_others_of_the_chapter_do_not():
    assert [round(tail(FEW, blocks), 2) for blocks in (2, 3)] == [1.32, 1.49]
    even = (Shape(2048, 2048, 64, 64, 64, 64, B=4, H_q=32, H_kv=32, causal=True),
            Shape(1024, 1024, 64, 64, 128, 64, B=8, H_q=16, H_kv=16))  # fmt: skip
    assert all(tail(shape, blocks) < 1.2 for shape in even for blocks in (1, 2, 3))
    dkdv = Shape(4096, 4096, 64, 64, 64, 64, B=2, H_q=16, H_kv=16)
    assert schedule.simulate(schedule.backward_tasks(dkdv), 2 * SMS).busy > 0.95


def test_the_measured_time_lies_between_an_even_share_and_the_prediction():
    mine = {p["tile"]: p for p in TEST if p["shape"] == "B=1 H=8 N=8192 d=128 causal"}
    between = set()
    for tile, p in mine.items():
        block_q, block_k = map(int, tile.split("x"))
        even = p["predicted_ms"] / tail(replace(FEW, block_q=block_q, block_k=block_k), 2)
        if even < p["measured_ms"] < p["predicted_ms"]:
            between.add(tile)
    assert between == {"64x64", "64x32"} and set(mine) == {"64x64", "64x32", "128x64", "32x64"}


def test_two_tiles_miss_wherever_they_are_used():
    def errors(tile, d):
        pairs = [p for p in PAIRS if (p["kernel"], p["tile"]) == ("forward", tile) and f" d={d}" in p["shape"]]
        return [p["error"] for p in pairs]

    assert len(errors("32x64", 128)) == 3 and all(error > 0.15 for error in errors("32x64", 128))
    assert all(error < -0.08 for d in (64, 128) for error in errors("128x64", d))


def test_hbm_alone_could_not_deliver_what_the_programs_ask_for():
    for B, H, N, d in ((4, 16, 4096, 64), (1, 4, 16384, 64), (4, 16, 2048, 128)):
        asked = workload.forward(Shape(N, N, d, d, 64, 64, B=B, H_q=H, H_kv=H)).requested
        (p,) = [p for p in PAIRS if p["shape"] == f"B={B} H={H} N={N} d={d}" and p["tile"] == "64x64"]
        assert asked / (GPU.l2_tbs * 1e9) < p["measured_ms"] < asked / (GPU.hbm_tbs * 1e9)


def test_short_softmax_launches_reach_2_6_to_3_5_tb_a_second():
    rates = []
    for p in TEST:
        if p["kernel"] == "softmax":
            rows, columns = map(int, p["shape"].split("x"))
            rates.append(4 * rows * columns / p["measured_ms"] / 1e9)
    assert (round(min(rates), 1), round(max(rates), 1)) == (2.6, 3.5) and max(rates) < GPU.hbm_tbs
