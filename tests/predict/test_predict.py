"""Predict boxes: each right answer is the oracles', each known mistake has its sentence, and no answer can be read."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forward import STEPS
from flashkit.predict import QUESTIONS, predict
from flashkit.predict.__main__ import main
from flashkit.predict.question import judge, read_number
from reference import backward, hopper_step, schedule, traffic, warpgroup_registers
from reference.forward import Problem, Trace, cut, dense, tiled
from reference.occupancy import occupancy
from reference.online_softmax import fold
from reference.pipeline import simulate
from reference.pipeline_programs import ring
from reference.shapes import kv_head
from reference.tile_budget import working_set

N = 16384
HEAD = traffic.Shape(N, N, 64, 64, 128, 128)
SP = sum(entry.read + entry.written for entry in traffic.naive(HEAD) if entry.tensor in "sp")
KV = sum(entry.read for entry in traffic.fa2(HEAD) if entry.tensor in "kv")
TWO = fold([1, 2, 3, 0], np.array([[2.0], [8], [4], [10]]), 2)
ONE_QUERY = Problem(np.ones((1, 1)), np.array([[0], [math.log(3)]]), np.array([[2.0], [6]]), scale=1.0, block_k=2)
dO = np.array([[2.0]])
PARALLEL = traffic.Shape(4096, 4096, 128, 128, 128, 64, H_q=8, H_kv=8)
CAUSAL = traffic.Shape(4096, 4096, 128, 128, 128, 64, H_q=8, H_kv=8, causal=True)


def dS():
    O, lse = dense(ONE_QUERY)
    tile = cut(ONE_QUERY, 0, 0)
    P = backward.probabilities(tile, lse)
    return backward.score_gradient(P, dO, tile.V_j, backward.row_dot(dO, O))[0]


def visits():
    ones = np.ones((4096, 1), np.float32)
    problem = Problem(ones, ones, ones, causal=True, block_q=128, block_k=64)
    trace = Trace()
    tiled(problem, trace=trace)
    return len(trace.events)


def tail():
    from flashkit.figures import example

    return int(cut(example(), 1, 1).visible.sum())


def passes():
    run = simulate({"a": [("wait", "new", 1)]}, {"new": 1})
    return "it passes at once" if run.diagnosis is None and not run.spans else "it never passes"


def measured(name):
    return json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / f"{name}.json").read_text())


def exp2_gain():
    exp, exp2 = (measured(f"backward{n}-h200")["results"] for n in ("-exp", ""))
    gains = [
        b["speed_over"]["cudnn"]["value"] / a["speed_over"]["cudnn"]["value"] for a, b in zip(exp, exp2, strict=True)
    ]
    return "about a quarter" if all(1.2 < gain < 1.3 for gain in gains) else gains


def largest_step():
    row = next(row for row in measured("forward-h200")["ladder"] if (row["head_dim"], row["n"]) == (128, 16384))
    gains = [row[step] / row[before] for before, step in pairwise((*STEPS, "gluon"))]
    return QUESTIONS["07.step"].choices[gains.index(max(gains))]


def left_of_fa3():
    rows = measured("forward-h200")["rows"]
    rates = {row["n"]: row["fa3"] for row in rows if (row["head_dim"], row["mask"]) == (128, "causal")}
    return f"about {100 * rates[2048] / rates[16384]:.0f} %"


RIGHT = {
    "01.one-matrix": lambda: N * N * 2 / traffic.MIB,
    "01.round-trips": lambda: SP / traffic.GIB,
    "01.doubled": lambda: (2 * N) ** 2 / N**2,
    "01.balance": lambda: 803 / 4.30,
    "02.two-blocks": lambda: (S := fold([0, math.log(3)], np.array([[10.0], [2]]), 1)).acc[0] / S.l,
    "02.alpha": lambda: math.exp(2 - 3),
    "02.sum": lambda: TWO.l,
    "02.output": lambda: TWO.acc[0] / TWO.l,
    "03.tail": tail,
    "03.visits": visits,
    "03.kv-bytes": lambda: KV / traffic.MIB,
    "03.gqa": lambda: kv_head(5, 8, 2),
    "03.mask-order": lambda: "its weights underflow and it becomes 0 / 0",
    "04.row-sum": lambda: dS().sum(),
    "04.D": lambda: backward.row_dot(dO, dense(ONE_QUERY)[0])[0],
    "04.dS": lambda: dS()[0],
    "04.products": lambda: 7,
    "07.serial": lambda: simulate(*ring(4, 1)).makespan,
    "07.double": lambda: simulate(*ring(4, 2)).makespan,
    "07.phase": passes,
    "07.registers": lambda: warpgroup_registers.split(2, 24).consumer,
    "07.step": largest_step,
    "07.short": left_of_fa3,
    "07.cap": lambda: 100 / (1 + hopper_step.exp_share(128)),
    "06.idle": lambda: sum(task.cost > 0 for task in schedule.head_tasks(PARALLEL)),
    "06.busy": lambda: 100 * schedule.waves(len(schedule.forward_tasks(PARALLEL)), 132).busy,
    "06.pairs": lambda: sum(task.cost for task in schedule.forward_tasks(CAUSAL)[:32]),
    "06.makespan": lambda: schedule.simulate(schedule.forward_tasks(CAUSAL), 132).makespan,
    "06.other-flop": lambda: 312 / 19.5,
    "05.exp2": exp2_gain,
    "05.query-tiles": lambda: traffic.Shape(4096, 4096, 128, 128, 32, 64).query_tiles,
    "05.working-set": lambda: working_set(64, 64, 128).total / traffic.KIB,
    "05.blocks": lambda: occupancy(90, 4, 255, 96 * traffic.KIB).blocks,
}
KNOWN = [
    ("01.one-matrix", "1,024", "4 bytes"),
    ("01.one-matrix", "537", "millions of bytes"),
    ("01.round-trips", "1", "two passes"),
    ("01.round-trips", "1.5", "P read"),
    ("01.round-trips", "2.15", "10⁹"),
    ("01.doubled", "2", "one side"),
    ("01.balance", "0.00535", "inverse"),
    ("02.two-blocks", "6", "average"),
    ("02.alpha", "2.718", "inverse"),
    ("02.sum", "2.418", "not rescaled"),
    ("02.sum", "31.2", "No maximum"),
    ("02.output", "3.19", "l was not rescaled"),
    ("02.output", "8.52", "acc was not rescaled"),
    ("03.tail", "4", "4 columns"),
    ("03.visits", "2048", "all tiles"),
    ("03.kv-bytes", "4", "once for every query tile"),
    ("03.gqa", "5", "heads 0 and 1"),
    ("03.mask-order", "its weights overflow", "smaller, not larger"),
    ("04.D", "16", "weighted"),
    ("04.dS", "1", "D is missing"),
    ("04.products", "5", "one kernel"),
    ("07.serial", "22", "two buffers"),
    ("07.double", "20", "first copy"),
    ("07.phase", "it never passes", "Parities repeat"),
    ("07.registers", "168", "gives back"),
    ("07.cap", "33 %", "exponentials' share"),
    ("07.step", "two products in flight", "hidden already"),
    ("07.short", "about 12 %", "an eighth"),
    ("06.idle", "124", "idle ones"),
    ("06.busy", "93.9", "124 of 132"),
    ("06.pairs", "1,024", "diagonal"),
    ("06.makespan", "64", "even share"),
    ("06.other-flop", "1/16", "inverse"),
    ("05.exp2", "twice as fast", "masks"),
    ("05.query-tiles", "32", "rows of a tile"),
    ("05.working-set", "48", "S and O"),
    ("05.working-set", "72", "fp32"),
    ("05.blocks", "0", "declares"),
    ("05.blocks", "16", "bind before"),
]


def test_every_question_has_its_answer_here():
    assert set(RIGHT) == set(QUESTIONS)


@pytest.mark.parametrize("id", QUESTIONS)
def test_the_oracles_answer_is_right(id):
    answer = RIGHT[id]()
    if not isinstance(answer, str):
        answer = round(float(answer), 12)
    judgement = judge(QUESTIONS[id], str(answer))
    assert (judgement.kind, judgement.says) == ("right", QUESTIONS[id].why)


@pytest.mark.parametrize("id, answer, says", KNOWN)
def test_a_known_mistake_has_its_own_sentence(id, answer, says):
    judgement = judge(QUESTIONS[id], answer)
    assert judgement.kind == "known" and says in judgement.says


@pytest.mark.parametrize("id", QUESTIONS)
def test_no_known_mistake_is_right(id):
    assert QUESTIONS[id].right not in QUESTIONS[id].known


def test_other_answers_are_wrong_or_unreadable():
    assert judge(QUESTIONS["01.one-matrix"], "17").kind == "wrong"
    for text in ("", "many", "512 MB", "1/0", "nan", "inf", "1e999"):
        assert judge(QUESTIONS["01.one-matrix"], text).kind == "unreadable", text
    assert judge(QUESTIONS["03.mask-order"], "").kind == "unreadable"


@pytest.mark.parametrize("near", ["4.97", "4.966", "4.96", "4.9655943", "4.98", "5"])
def test_rounding_is_tolerated(near):
    assert (judge(QUESTIONS["02.output"], near).kind == "right") == (near != "5")


@pytest.mark.parametrize(
    "text, value", [("2,048", 2048), (" 512 MiB ", 512), ("−1.5", -1.5), ("1/4", 0.25), ("1e3", 1000), ("x", None)]
)
def test_numbers_are_read_as_people_write_them(text, value):
    assert read_number(text, "MiB") == value


def test_the_answers_are_not_in_the_questions_file_as_such():
    source = (Path(__file__).resolve().parents[2] / "flashkit/predict/questions.py").read_text()
    for id, question in QUESTIONS.items():
        assert len(question.right) == 12 and f'"{question.right}"' in source, id


def test_authors_get_a_key(capsys):
    assert main(["01.one-matrix", "512"]) == 0
    assert capsys.readouterr().out.strip() == QUESTIONS["01.one-matrix"].right
    assert main(["01.nothing", "512"]) == 2
    assert main(["01.one-matrix", "many"]) == 2


def test_an_unknown_question_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean '01.one-matrix'"):
        predict("01.one-matrx")


def test_the_box_never_sends_the_answer_and_keeps_progress(monkeypatch, tmp_path):
    pytest.importorskip("anywidget", reason="not run here: needs anywidget")
    from flashkit.progress import progress

    monkeypatch.setenv("FLASHKIT_PROGRESS", str(tmp_path / "progress.json"))
    shown = predict("01.one-matrix")
    assert QUESTIONS["01.one-matrix"].right not in str(shown.box.get_state())
    shown.box.answer("1,024")
    assert shown.box.verdict["says"] == "Not yet. That is 4 bytes an element; fp16 has 2."
    shown.box.answer("what")
    shown.box.answer("512")
    assert shown.box.verdict["says"].startswith("Right. ") and shown.box.verdict["tries"] == 2
    assert progress().boxes == {"01.one-matrix": {"tries": 2, "right": True}}


def test_without_anywidget_the_question_is_text(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    bundle = predict("03.mask-order")._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    assert bundle["text/plain"].startswith("Predict: The maximum is taken before the mask")
