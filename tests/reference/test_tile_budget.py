"""reference.tile_budget: the syllabus' numbers, and the direction of what the compiler says of a real kernel."""

import pytest
import torch

import flashkit  # noqa: F401  comes before triton
from flashkit.exercises import lab_cells
from flashkit.instruments.resources import ARCHITECTURES, resources
from reference.occupancy import KIB, LIMITS, occupancy, system_shared
from reference.tile_budget import SPILLS, estimate, working_set
from reference.traffic import Shape, fa2


@pytest.mark.parametrize("rows, kib, tiles", [(32, 64, 128), (64, 96, 64), (128, 160, 32)])
def test_the_syllabus_example(rows, kib, tiles):
    assert working_set(rows, 64, 128).total == kib * KIB
    assert Shape(4096, 4096, 128, 128, rows, 64).query_tiles == tiles


def test_the_formula_by_hand():
    used = working_set(16, 32, 64, d_v=128, itemsize=4)
    assert (used.inputs, used.scores, used.output) == (4 * (16 * 64 + 32 * 64 + 32 * 128), 4 * 16 * 32, 4 * 16 * 128)


@pytest.mark.parametrize("rows", (32, 64, 128, 256))
def test_k_and_v_are_read_once_a_query_tile(rows):
    shape = Shape(4096, 4096, 128, 128, rows, 64)
    assert sum(e.read for e in fa2(shape) if e.tensor in "kv") == shape.query_tiles * 2 * 4096 * 128 * 2


def test_an_older_gpu_has_fewer_registers_a_block_than_an_sm():
    assert LIMITS[53].block_registers == LIMITS[53].registers // 2
    assert occupancy(53, 8, 168, 0).blocks == 0 and occupancy(75, 8, 168, 0).blocks == 1
    assert (system_shared(75), system_shared(80)) == (0, KIB)


# ---- the guess


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bigger_tiles_and_more_stages_never_need_less(arch):
    sides = (16, 32, 64, 128, 256)
    for smaller, larger in zip(sides, sides[1:], strict=False):
        a, b, c = (estimate(arch, *tile, 128) for tile in ((smaller, 64), (larger, 64), (64, larger)))
        assert a.registers <= b.registers and estimate(arch, 64, smaller, 128).shared <= c.shared
    for stages in (2, 3, 4):
        assert estimate(arch, 64, 64, 128, 4, stages).shared < estimate(arch, 64, 64, 128, 4, stages + 1).shared
    assert estimate(arch, 128, 128, 128, 8).registers < estimate(arch, 128, 128, 128, 4).registers


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_guess_of_128_by_128_spills_with_4_warps(arch):
    guess = estimate(arch, 128, 128, 128, 4, 2)
    assert guess.binds == SPILLS and not guess.fits


def test_what_is_past_a_blocks_limit_does_not_fit():
    guess = estimate(120, 128, 128, 128, 8, 3)
    assert guess.shared > LIMITS[120].block_shared and guess.occupancy.blocks == 0 and not guess.fits


# ---- the compiler: unmasked, as in the chapter; the direction, not the byte


@pytest.fixture(scope="module")
def ask():
    kernel = lab_cells.load(chapter_kernel(), "forward")
    x = torch.empty(32, 4096, 128, dtype=torch.float16, device="meta")

    def compiled(block_q, block_k, warps, stages, *archs):
        tile = dict(d=128, block_q=block_q, block_k=block_k, num_warps=warps, num_stages=stages)
        return resources(kernel, x, x, x, x, 128**-0.5, 4096, **tile, archs=archs)

    return compiled


def chapter_kernel():
    """The kernel cell of chapter 05 as a module."""
    import json

    from tests.labs.kernels import ROOT

    notebook = json.loads((ROOT / "notebooks" / "05_tile_budgets.ipynb").read_text())
    (source,) = ("".join(cell["source"]) for cell in notebook["cells"] if cell["id"] == "kernel")
    return f"import triton\nimport triton.language as tl\n\n\n{source}\n"


@pytest.mark.slow
def test_128_by_128_with_4_warps_has_a_stack_frame_on_all_six(ask):
    table = ask(128, 128, 4, 2, *ARCHITECTURES)
    assert all(row.ok and row.spills for row in table), str(table)


@pytest.mark.slow
def test_128_by_64_on_hopper_has_none_and_more_stages_take_more_shared_memory(ask):
    two, three, four = (ask(128, 64, 4, stages, 90)[0] for stages in (2, 3, 4))
    assert two.spills == 0 and two.registers > 200 and two.shared == 96 * KIB
    assert two.shared < three.shared < four.shared
    assert (two.occupancy.blocks, three.occupancy.blocks) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("arch, tile", [(80, (64, 64, 4, 2)), (90, (128, 128, 8, 2)), (120, (128, 64, 8, 2))])
def test_the_guess_is_near(ask, arch, tile):
    row, guess = ask(*tile, arch)[0], estimate(arch, *tile[:2], 128, *tile[2:])
    assert guess.shared == row.shared and guess.fits == (row.ok and not row.spills)
