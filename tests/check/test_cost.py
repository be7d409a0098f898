"""The two lines of a check about cost: from the gate's one answer, always called predicted, and for any GPU."""

from dataclasses import replace

import pytest

from flashkit import exercises
from flashkit.check import check
from flashkit.check.cost import Target, cost
from flashkit.exercises.contract import Case
from flashkit.instruments import compile_gate, workload
from flashkit.instruments.compile_gate import CompileResult
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.roofline import predict
from reference.machines import MACHINE
from tests.labs.kernels import load

HEADS = exercises.get("03.heads")
CASE = next(case for case in HEADS.cases if case.dtype == "fp16")
LOOP = Mix(issued=403, cycles=714, special=34, matrix=262144.0, barriers=3, shuffles=8)
LISTING = Listing(replace(LOOP, cycles=1500), [LOOP])
COMPILED = CompileResult("forward_kernel", "ok", arch=90, registers=125, spills=0, shared=57344, static_shared=0,
                         threads=128, listing=LISTING)  # fmt: skip
TRITON = [e for e in exercises.EXERCISES.values() if "bytes" in e.shares and e.id[:2] <= "06"]


def test_a_check_compiles_once_and_tells_resources_and_time(monkeypatch):
    started, start = [], compile_gate.start

    def counted(launch, *args, **options):
        started.append(launch)
        return start(launch, *args, **options)

    monkeypatch.setattr(compile_gate, "start", counted)
    report = check("03.rows", load("03.rows", "solution"), show=False)
    assert report.verdict == "right" and len(started) == 1
    for text in (str(report), report._repr_html_()):
        assert "Compiles for sm_90; predicted: rows_kernel" in text and "within the budget" in text
        assert "Predicted time on an H200, not measured:" in text and "N_q=8192" in text
    assert 1e-5 < report.cost.seconds < 1e-1


def test_the_time_is_that_of_the_model_for_the_large_call():
    told, large = cost(HEADS, CASE, [COMPILED], Target()), HEADS.timed.like(CASE)
    assert large.sizes["N_q"] == 4096 and large.sizes["d"] == CASE.sizes["d"] and large.options["offset"] == 0
    shape = workload.Shape(4096, 4096, 32, 16, 32, 32, B=4, H_q=16, H_kv=16)
    row = told_row()
    assert told.seconds == predict(row, workload.forward(shape), MACHINE["H200 measured"]).seconds


def told_row():
    from flashkit.instruments.resources import of

    return of(COMPILED, "forward_kernel", 90)


def test_stages_are_those_of_the_launch():
    slow = cost(HEADS, CASE, [replace(COMPILED, stages=1)], Target())
    assert slow.seconds > cost(HEADS, CASE, [COMPILED], Target()).seconds


def test_spills_and_too_few_blocks_are_over_the_budget():
    for change in ({"spills": 64}, {"shared": 200 * 1024}):
        told = cost(HEADS, CASE, [replace(COMPILED, **change)], Target())
        assert "forward_kernel over the budget" in told.resources
    assert "64 B spilled" in cost(HEADS, CASE, [replace(COMPILED, spills=64)], Target()).resources


def test_another_number_of_kernels_has_no_time():
    told = cost(HEADS, CASE, [COMPILED, COMPILED], Target())
    assert told.seconds is None and "2 kernels" in told.time


def test_what_was_not_compiled_is_not_told():
    assert cost(HEADS, CASE, [], Target()) is None
    assert cost(HEADS, CASE, [replace(COMPILED, kind="timeout", registers=None)], Target()) is None


@pytest.mark.parametrize(
    ("arch", "gpu", "machine"),
    [
        (90, "NVIDIA H200", "H200 measured"),
        (90, "NVIDIA H100 80GB HBM3", "H100"),
        (80, "NVIDIA A100-SXM4-80GB", "A100"),
        (89, "NVIDIA GeForce RTX 4090", "RTX 4090"),
        (86, "NVIDIA GeForce RTX 3060", None),
    ],
)
def test_a_gpu_is_known_by_its_name(arch, gpu, machine):
    assert Target(arch, gpu).machine is (MACHINE[machine] if machine else None)
    told = cost(HEADS, CASE, [replace(COMPILED, arch=arch)], Target(arch, gpu))
    assert ("on this" in told.time) if machine else ("no data of " + gpu in told.time)


@pytest.mark.parametrize("exercise", TRITON, ids=lambda exercise: exercise.id)
def test_every_triton_kernel_of_the_labs_has_a_large_call(exercise):
    case = min(exercise.cases, key=lambda case: case.dtype != "fp16")
    large = exercise.timed.like(case)
    works, tensors = exercise.timed.works(large), exercise.timed.tensors(large)
    given = exercise.call(case).tensors
    assert list(tensors) == list(given)
    assert all(work.requested >= work.distinct + work.written - work.warm > 0 for work in works)
    assert {n: (a.values.shape, a.dtype) for n, a in given.items()} == exercise.timed.tensors(case)


def test_the_large_calls_bytes_are_the_budgets():
    """For one head without a mask the work's requests are what the exercise's own budget allows."""
    for id in ("03.rows", "04.row_dot", "04.dkdv", "04.dq", "01.naive_attention", "01.softmax"):
        exercise = exercises.get(id)
        case = min(exercise.cases, key=lambda case: case.dtype != "fp16")
        even = with_whole_tiles(case)
        extra = {"03.rows": 4 * even.sizes.get("N_q", 0)}.get(id, 0)  # its ledger counts lse, which 03.rows has not
        requested = sum(work.requested for work in exercise.timed.works(even))
        assert requested == sum(exercise.budget(even).values()) + extra, id


def with_whole_tiles(case: Case) -> Case:
    return replace(case, sizes={n: 64 if n in ("N_q", "N_k") else v for n, v in case.sizes.items()})
