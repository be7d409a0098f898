"""What a kernel loads must come from the inputs: NumPy's numbers or another thread's are refused, copies are not."""

import ctypes
import threading

import numpy as np
import pytest
import torch

import flashkit  # noqa: F401  switches the interpreter on
from flashkit.runtime.call import Argument, Call, Returned
from flashkit.runtime.runner import run
from flashkit.runtime.warm import copy

CALL = Call({"x": Argument(np.arange(20.0))}, {}, (Returned("out", (20,), "fp32"),))


def doubled(x):
    return 2 * np.array(x.tolist(), np.float32)


def in_a_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x * 2))
    thread.start()
    thread.join()
    return copy(found[0], 16)


def through(write):
    def answer(x):
        y = torch.zeros_like(x)
        write(y, doubled(x))
        return copy(y, 16)

    return answer


def filled(y, numbers):
    y.numpy()[:] = numbers


def moved(y, numbers):
    ctypes.memmove(y.data_ptr(), numbers.ctypes.data, numbers.nbytes)


def assigned(y, numbers):
    y[:10], y[10:] = torch.from_numpy(numbers[:10]), torch.from_numpy(numbers[10:])


LAUNDERED = {
    "from_numpy": lambda x: copy(torch.from_numpy(doubled(x)), 16),
    "copied": lambda x: copy(torch.cat([torch.from_numpy(doubled(x)), x])[:20].clone(), 16),
    "list": lambda x: copy(torch.tensor(doubled(x).tolist()), 16),
    "thread": in_a_thread,
    "view": through(filled),
    "ctypes": through(moved),
    "assigned": through(assigned),
}
HONEST = {
    "plain": lambda x: copy(x, 16),
    "two launches": lambda x: copy(copy(x, 16), 16),
    "copies": lambda x: copy(torch.cat([x[:7].clone(), x[7:]]).double().float().contiguous(), 16),
    "in place": lambda x: copy(torch.empty_like(x).zero_().copy_(x), 16),
    "scratch": lambda x: copy(torch.zeros_like(x).masked_fill_(x > 3, float("-inf")), 16),
    "table": lambda x: copy(torch.arange(20, dtype=torch.float32), 16),
}


@pytest.mark.parametrize("name", LAUNDERED)
def test_numbers_computed_past_pytorch_are_refused(name):
    problem = run(LAUNDERED[name], CALL, show=False).problem
    assert problem and problem.verdict == "refused", problem
    assert "computed outside it" in problem.sentence or "PyTorch's mul" in problem.sentence


@pytest.mark.parametrize("name", HONEST)
def test_copies_and_scratch_are_not(name):
    assert run(HONEST[name], CALL, show=False).problem is None
