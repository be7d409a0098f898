"""What `python -m tests.gpu.hopper` would do on a GPU, with the emulator's kernels in the GPU's place."""

from dataclasses import replace

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import large_call
from tests.gpu import hopper
from tests.labs import gluon_emulator
from tests.labs.kernels import base_source, patched
from tests.labs.test_gluon import kernel

torch = pytest.importorskip("torch")
SMALL = hopper._shape(130, 200, "fp16", 64, 70, 4)


def whole(*patch):
    return gluon_emulator.load(patched(base_source("07.gluon", "solution"), patch), "gluon_forward")


def test_a_right_kernel_passes_and_repeats_agree():
    kernel = whole()
    row = hopper.judge("07.gluon", kernel, SMALL, device="cpu")
    assert row.right and row.lse_right and row.error <= row.allowed
    assert hopper.repeats("07.gluon", kernel, SMALL, device="cpu", times=2)


def test_a_wrong_one_does_not():
    wrong = whole(("first_row + offset + gl.arange", "first_row + offset - 1 + gl.arange"))
    assert not hopper.judge("07.gluon", wrong, SMALL, device="cpu").right


def test_the_shapes_are_those_that_were_promised():
    shapes = hopper.shapes(causal=True)
    assert {s.N_q for s in shapes} >= {1, 63, 64, 65, 127, 1000, 1025, 4096}
    assert {s.H_q // s.H_kv for s in shapes} == {1, 4, 8}
    assert {(s.dtype, s.d) for s in shapes} == {(t, d) for t in ("fp16", "bf16") for d in (64, 128)}
    assert {s.offset for s in shapes} >= {None, 0, 25, -25} and any(s.bshd for s in shapes)
    assert hopper.REPEATS == 50
    assert not any(s.offset is not None for s in hopper.shapes(causal=False))


def test_a_child_that_ends_badly_is_no_pass():
    assert not hopper.passed({"ended": "It hangs", "rows": [{"right": True}], "bitwise": [True]})
    assert not hopper.passed({"ended": "", "rows": [], "bitwise": []})
    assert not hopper.passed({"ended": "", "rows": [{"right": True}], "bitwise": [True, False]})
    assert hopper.passed({"ended": "", "rows": [{"right": True}], "bitwise": [True]})


def test_every_case_of_every_kernel_is_dealt_to_one_child():
    dealt = [case for job in hopper.jobs() for case in job]
    assert sorted(dealt) == sorted(case for id in hopper.KERNELS for case in hopper.cases(id))
    assert len(dealt) == len(set(dealt)) and len(hopper.jobs()) <= hopper.AT_ONCE
    assert all(len({case.split()[0] for case in job}) == 1 for job in hopper.jobs())  # a hang costs its kernel alone


def test_an_answer_is_filed_under_its_kernel():
    results = {"07.gluon": {"rows": [], "bitwise": [], "ended": []}}
    hopper.add(results, {"case": "07.gluon shape 0", "right": True})
    hopper.add(results, {"case": "07.gluon repeats 0", "same": True})
    assert hopper.passed(results["07.gluon"])
    hopper.add(results, {"case": "07.gluon shape 1", "ended": "It hangs"})
    assert not hopper.passed(results["07.gluon"])


@pytest.mark.parametrize("step", ["two_products", "gluon"])
def test_a_gpu_cell_would_compare_with_an_fp32_run(step):
    exercise = exercises.get(f"07.{step}")
    case = replace(exercise.gpu.case, sizes={**exercise.gpu.case.sizes, "H_q": 2, "H_kv": 2, "N_q": 200, "N_k": 200})
    tensors = large_call.buffers(exercise, case, "cpu")
    for tensor in tensors.values():
        tensor.normal_(generator=torch.Generator().manual_seed(1))
    course = kernel(step)
    assert large_call.disagreement(exercise, course, course, case, tensors) == ""
    wrong = kernel(step, (("first_row + gl.arange(0, acc", "first_row + 1 + gl.arange(0, acc"),))  # lse a row too far
    assert large_call.disagreement(exercise, wrong, course, case, tensors).startswith("In fp16")
