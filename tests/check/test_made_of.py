"""The share for the compiled code: what was asked for must be in it, and Gluon's roles too, all without a GPU."""

import pytest

import flashkit  # noqa: F401  comes before triton
from flashkit import exercises
from flashkit.check import check, check_time, conclude, made_of
from flashkit.check.cost import Target
from flashkit.exercises import lab_cells
from flashkit.exercises.contract import MadeOf
from flashkit.instruments import dry_run
from flashkit.instruments.compile_gate import CompileResult, Pending
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.resources import resources
from tests.labs.kernels import base_source, load

torch = pytest.importorskip("torch")
STEPS = ("wgmma", "producer", "consumers", "two_products")


def compiled(kinds=("TMA", "wgmma"), spills=0, roles=((4, 240), (1, 24)), in_flight=1):
    mix = Mix()
    mix.kinds |= dict.fromkeys(kinds, 3)
    return CompileResult("kernel", "ok", listing=Listing(mix, []), spills=spills, roles=roles, in_flight=in_flight)


WANTED = MadeOf("TMA", "wgmma", (4, 1), 1)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (compiled(), None),
        (compiled(kinds=("wgmma",)), "No TMA"),
        (compiled(kinds=("TMA", "mma.sync")), "No wgmma"),
        (compiled(spills=8), "spills 8 bytes"),
        (compiled(roles=()), "it has no workers"),
        (compiled(roles=((8, 240), (1, 24))), "it has workers of 8, 1 warps"),
        (compiled(roles=((4, 240), (1, 240))), "producer asks for 240"),
        (compiled(roles=((4, 240), (1, 0))), "no number of registers"),
        (compiled(in_flight=0), "Every wait is for all products"),
    ],
)
def test_what_is_missing_is_said(result, said):
    lacking = made_of.judged(WANTED, [result])
    assert lacking == [] if said is None else len(lacking) == 1 and said in lacking[0]


def loop(**counted):
    found = Mix(special=8)
    found.kinds |= counted
    return found


def test_products_count_in_the_loops_that_take_exponentials():
    honest, spared = compiled(), compiled()
    honest.listing.loops += [loop(wgmma=4), Mix()]
    spared.listing.loops += [loop(**{"mma.sync": 4}), loop(wgmma=4)]
    assert made_of.judged(WANTED, [honest]) == []
    assert made_of.judged(WANTED, [spared]) == [made_of.MISSING["wgmma"]]


def test_a_second_kernel_lends_nothing_to_the_one_that_does_the_work():
    decoy, worker, helper = compiled(), compiled(kinds=("mma.sync",)), compiled(kinds=())
    decoy.listing.whole.special = worker.listing.whole.special = 8
    assert made_of.judged(WANTED, [decoy, helper]) == []
    assert made_of.judged(WANTED, [worker, decoy]) == [made_of.MISSING["TMA"], made_of.MISSING["wgmma"]]


def test_what_was_not_compiled_is_not_judged():
    assert made_of.judged(WANTED, []) is None
    assert made_of.judged(WANTED, [CompileResult("kernel", "unavailable")]) is None
    assert made_of.judged(None, [compiled()]) is None


def test_a_kernel_with_pointers_is_right_and_lacks_the_codes_share():
    text = base_source("03.heads", "solution").replace("def flash_forward(", "def flash_descriptors(")
    report = check("07.descriptors", lab_cells.load(text, "flash_descriptors"), show=False)
    assert report.verdict == "right" and report.points == pytest.approx(0.8 * report.out_of)
    assert "No TMA copy" in str(report)


def test_a_kernel_of_tritons_is_no_answer_to_an_exercise_about_gluon():
    own = "\n\ndef gluon_wgmma(q, k, v, scale):\n    return flash_descriptors(q, k, v, False, 0, scale, 64, 128)\n"
    pasted = lab_cells.load(base_source("07.descriptors", "solution") + own, "gluon_wgmma")
    report = check("07.wgmma", pasted, show=False)
    assert (report.verdict, report.points) == ("refused", 0.0) and "`descriptor_kernel` is a kernel of Triton's" in str(
        report
    )


def test_what_does_not_compile_has_no_code_to_wait_for():
    refused = Pending.answered(CompileResult("tile_softmax", "refused", error="NvrtcError", message="expected a ;"))
    report = conclude(exercises.get("07.cp_async"), [], [refused], again=None)
    assert report.verdict == "will not compile" and report.parts["code"] is False


def test_two_products_in_flight_earn_all_that_compiling_can():
    report = check("07.two_products", load("07.two_products", "solution"), show=False)
    assert (report.verdict, report.points) == ("not judged", report.out_of)
    assert "4 warps with 240 registers, 1 warp with 24 registers" in str(report)
    assert report.pending == ["answers and time (07.two_products.gpu)"]


def test_one_product_at_a_time_is_not_two_in_flight():
    patch = (("S = warpgroup_mma_wait(1, deps=[S])", "S = warpgroup_mma_wait(0, deps=[S])"),)
    report = check("07.two_products", load("07.two_products", "solution", patch), show=False)
    assert report.points == report.out_of / 2 and "Every wait is for all" in str(report)


def test_cuda_without_cp_async_lacks_the_codes_share():
    pytest.importorskip("cuda.core")
    line = 'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from));'
    slow = "*(float4 *) to = *(const float4 *) from;"
    for patch, share in (((), 1.0), (((line, slow),), 0.5)):
        report = check("07.cp_async", load("07.cp_async", "solution", patch), show=False)
        assert report.points == share * report.out_of, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("step", [*STEPS, "full", "causal"])
def test_gluon_spills_nothing(step, d, dtype):
    id = "07.gluon" if step in ("full", "causal") else f"07.{step}"
    q, k = (torch.empty(2, heads, 1000, d, dtype=dtype, device="meta") for heads in (4, 2))
    options = (step == "causal", 0) if id == "07.gluon" else ()
    (launch,) = dry_run.launches(load(id, "solution"), q, k, k, *options, d**-0.5)
    (row,) = resources(launch, archs=(90,))
    assert row.ok and row.spills == 0 and (row.matrix, row.copies) == ("wgmma", "TMA"), str(row)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(1, 1), (1, 1000), (64, 64), (4096, 4096)])
def test_any_length_compiles(lengths):
    q, k = (torch.empty(1, 1, n, 128, dtype=torch.float16, device="meta") for n in lengths)
    (launch,) = dry_run.launches(load("07.gluon", "solution"), q, k, k, True, lengths[1] - lengths[0], 0.1)
    (row,) = resources(launch, archs=(90,))
    assert row.ok and row.spills == 0, str(row)


@pytest.mark.parametrize(
    ("target", "runs"), [(Target(), False), (Target(80, "A100"), False), (Target(90, "H200"), True)]
)
def test_gluon_is_pending_on_any_gpu_but_a_hopper(target, runs, monkeypatch):
    monkeypatch.setattr("flashkit.check.here", lambda: target)
    monkeypatch.setattr("flashkit.check.time_on_gpu", lambda exercise, function, target: "timed")
    monkeypatch.setattr("flashkit.check.interpreting", lambda: False)
    told = check_time("07.gluon", print)
    assert told == "timed" if runs else "needs a Hopper GPU" in str(told) and told.pending


def test_a_gluon_exercises_points_are_a_fifth_without_a_gpu():
    for exercise in exercises.EXERCISES.values():
        if exercise.needs_gpu:
            assert exercise.points <= 0.2 * (exercise.points + exercise.gpu_points)
