"""Without bubblewrap: a loud warning, and plain children that still grade honest work and end with the grader."""

import time

import pytest

from flashkit import exercises
from flashkit.grading import sandbox
from flashkit.runtime import wire

ADD = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
    y = tl.load(y_ptr + lanes, mask=lanes < n, other=0.0)
    tl.store(out_ptr + lanes, x + y, mask=lanes < n)

def add(x, y, block):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.shape[0], block),)](x, y, out, x.shape[0], block=block)
    return out
"""


@pytest.fixture
def without_bubblewrap(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    sandbox.available.cache_clear()
    yield
    sandbox.available.cache_clear()


def test_the_warning_says_what_to_do(without_bubblewrap, capsys):
    with pytest.warns(RuntimeWarning, match="apt-get install bubblewrap"):
        assert not sandbox.available()
    assert "grading: WARNING" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:bubblewrap")
def test_plain_children_run_the_runtime_part_alone(without_bubblewrap):
    exercise = exercises.get("00.add")
    case = exercise.cases[1]
    server = sandbox.Sandbox(sandbox.Limits())
    try:
        for source in ("import flashkit.exercises\n" + ADD, ADD):
            channel = server.begin()
            wire.send(channel, {"cells": [["cell", source]], "function": "add", "seconds": 60})
            said = {}
            while "ready" not in said:
                said, _ = wire.receive(channel, time.monotonic() + 120)
            if said["ready"]:
                header, arrays = wire.call_header(exercise.call(case))
                wire.send(channel, {**header, "undefined": True, "kernels": False}, arrays)
                outcome = wire.read_outcome(*wire.receive(channel, time.monotonic() + 120), exercise.call(case).returns)
            channel.close()
            assert said["ready"] == (source is ADD) and server.end()[1]
    finally:
        server.close()
    assert outcome.problem is None and outcome.outputs["out"].shape == (case.sizes["n"],)
