"""Calls and outcomes cross unchanged; nothing a child sends makes the reader do more than raise WireError."""

import json
import math
import socket
import struct
import threading
import time

import numpy as np
import pytest

from flashkit import exercises
from flashkit.instruments.record import Finding, Traffic
from flashkit.runtime import wire
from flashkit.runtime.call import LIST_LIMIT, TEXT_LIMIT, Outcome, Problem, Returned

RETURNS = (Returned("o", (2, 3), "fp32"),)
FINDING = Finding(
    "outside", "k", (0, np.int64(3)), (1, 0, 0), None, "kernel", 7, "line", "detail", "file", "load", True
)


def crossed(header, arrays):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=wire.send, args=(ours, header, arrays))
        sender.start()
        received = wire.receive(theirs, time.monotonic() + 60)
        sender.join()
    return received


@pytest.mark.parametrize("case", exercises.get("03.heads").cases[:4], ids=lambda case: case.why)
def test_a_call_crosses_unchanged(case):
    call = exercises.get("03.heads").call(case)
    read = wire.read_call(*crossed(*wire.call_header(call)))
    assert (read.options, read.returns, read.seconds) == (dict(call.options), call.returns, call.seconds)
    for name, argument in call.tensors.items():
        assert (read.tensors[name].dtype, read.tensors[name].layout) == (argument.dtype, argument.layout)
        np.testing.assert_array_equal(read.tensors[name].values, argument.values)


def test_an_outcome_crosses_unchanged():
    outcome = Outcome(
        outputs={"o": np.array([[1.0, math.nan, -math.inf], [0.1, 2.0, 3.0]])},
        problem=Problem("wrong", "sentence", "fault", "where", 3, "line", "traceback", FINDING),
        traffic={"q": Traffic(1, 2, 3, 4, 5)},
        findings=[FINDING],
        printed="said",
        seconds=0.5,
    )
    read = wire.read_outcome(*crossed(*wire.outcome_header(outcome)), RETURNS)
    np.testing.assert_array_equal(read.outputs["o"], outcome.outputs["o"])
    assert (read.problem, read.traffic, read.findings) == (outcome.problem, outcome.traffic, outcome.findings)


def test_a_plain_number_crosses_as_one():
    outcome = Outcome(outputs={"bytes": np.array(3.0)})
    read = wire.read_outcome(*crossed(*wire.outcome_header(outcome)), (Returned("bytes", (), "number"),))
    assert read.outputs["bytes"].shape == () and read.outputs["bytes"] == 3.0


TEXT = (Returned("source", (), "text"), Returned("threads", (), "number"))


def test_a_text_crosses_in_full_or_not_at_all():
    source = "é__global__\0\n" * 1000
    outcome = Outcome({"threads": np.array(256.0)}, {"source": source})
    header, arrays = crossed(*wire.outcome_header(outcome))
    assert wire.read_outcome(header, arrays, TEXT).texts == {"source": source}
    for texts in ({}, {"source": 3}, {"source": None}, {"source": "x" * (TEXT_LIMIT + 1)}, {"other": "x"}, "source"):
        with pytest.raises(wire.WireError):
            wire.read_outcome({**header, "texts": texts}, arrays, TEXT)


@pytest.mark.parametrize("dtype, width", [("list", 2), ("schedule", 9)])
def test_more_rows_than_any_answer_has_are_refused(dtype, width):
    returns = (Returned("rows", (-1, width), dtype),)
    header, _ = wire.outcome_header(Outcome())
    assert len(wire.read_outcome(header, {"rows": np.zeros((LIST_LIMIT, width))}, returns).outputs["rows"])
    with pytest.raises(wire.WireError):
        wire.read_outcome(header, {"rows": np.zeros((LIST_LIMIT + 1, width))}, returns)


def test_what_is_said_can_be_written_to_a_file():
    problem = wire.read_problem({**wire.problem_header(Problem("wrong", "half \ud800 of one")), "line": "\udfff"})
    assert (problem.sentence, problem.line) == ("half ? of one", "?")


GOOD, _ = wire.outcome_header(Outcome(traffic={"q": Traffic()}))
OUTPUT = {"o": np.zeros((2, 3))}


@pytest.mark.parametrize(
    ("change", "outputs"),
    [
        ({}, {}),
        ({}, {"o": np.zeros((3, 2))}),
        ({"problem": {"verdict": "right"}}, OUTPUT),
        ({"problem": 3}, OUTPUT),
        ({"traffic": {"q": {"loaded": "many"}}}, OUTPUT),
        ({"traffic": None}, OUTPUT),
        ({"findings": [{"kind": "applause"}]}, OUTPUT),
        ({"findings": [None]}, OUTPUT),
        ({"undefined": 7}, OUTPUT),
        ({"printed": ["x"]}, OUTPUT),
        ({"seconds": "soon"}, OUTPUT),
    ],
)
def test_what_is_no_outcome_is_refused(change, outputs):
    with pytest.raises(wire.WireError):
        wire.read_outcome({**GOOD, **change}, outputs, RETURNS)


def frame(text: bytes, body: bytes = b"", lengths=None) -> bytes:
    return struct.pack(">IQ", *(lengths or (len(text), len(body)))) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04cos\nsystem\n",
        frame(b"{}"),
        frame(b"[]"),
        frame(b"not json"),
        frame(b"[" * 100_000),
        frame(b"\xff\xff"),
        frame(json.dumps({"arrays": [["o", "object", [2]]]}).encode(), bytes(16)),
        frame(json.dumps({"arrays": [["o", "float64", [2**40, 2**40]]]}).encode()),
        frame(json.dumps({"arrays": [["o", "float64", [-1]]]}).encode()),
        frame(json.dumps({"arrays": []}).encode(), b"left over"),
        frame(b"", b"", (2**32 - 1, 0)),
        frame(b"{}", b"", (2, 2**63)),
    ],
)
def test_what_is_no_frame_is_an_error_and_nothing_more(data):
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(data)
        with pytest.raises(wire.WireError):
            wire.receive(theirs, time.monotonic() + 30)


def test_a_silent_child_is_not_waited_for():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = time.monotonic()
        with pytest.raises(wire.WireError, match="too slow"):
            wire.receive(theirs, before + 0.2)
        assert time.monotonic() - before < 30
