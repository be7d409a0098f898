"""The pictures of chapter 05: bars as long as their bytes, cells as the estimate has them."""

import pytest

from flashkit.figures import tile_budgets, what_binds
from flashkit.figures.tile_budgets import DIMENSIONS, KEY_TILES, LEFT, MOST, QUERY_TILES, RIGHT, limits
from flashkit.figures.what_binds import LOOK, SIDES, STAGES, WARPS, look
from reference.machines import OF_ARCH
from reference.occupancy import KIB
from reference.tile_budget import estimate, working_set


@pytest.mark.parametrize("k", range(len(KEY_TILES)))
@pytest.mark.parametrize("n", range(len(DIMENSIONS)))
def test_a_bar_is_as_long_as_its_bytes(k, n):
    for frame, rows in zip(tile_budgets().variants[k, n].frames, QUERY_TILES, strict=True):
        used = working_set(rows, KEY_TILES[k], DIMENSIONS[n])
        wide = [frame[f"{part} {rows}"].w * MOST / (RIGHT - LEFT) for part in ("inputs", "scores", "output")]
        assert wide == pytest.approx([used.inputs, used.scores, used.output])
        assert frame[f"total {rows}"].text == f"{used.total / KIB:g} KiB"
        assert frame[f"tiles {rows}"].text == f"{4096 // rows} query tiles"


def test_the_syllabus_example_is_what_is_shown_first():
    captions = [frame.caption for frame in tile_budgets().scene.frames[:3]]
    for caption, kib, tiles in zip(captions, (64, 96, 160), (128, 64, 32), strict=True):
        assert f": {kib} KiB." in caption and f"read {tiles} times" in caption


def test_the_dashed_lines_are_the_six_limits():
    assert limits() == {99 * KIB: "sm_86, 89, 120", 163 * KIB: "sm_80", 227 * KIB: "sm_90, 100"}
    frame = tile_budgets().scene.frames[0]
    assert frame[f"limit {99 * KIB}"].x == pytest.approx(LEFT + (RIGHT - LEFT) * 99 * KIB / MOST)


@pytest.mark.parametrize("g, arch", list(enumerate(OF_ARCH)))
@pytest.mark.parametrize("w, warps", list(enumerate(WARPS)))
def test_each_cell_is_the_estimate(g, arch, w, warps):
    for frame, stages in zip(what_binds().variants[g, w].frames, STAGES, strict=True):
        good = 0
        for block_q in SIDES:
            for block_k in SIDES:
                guess, cell = estimate(arch, block_q, block_k, 128, warps, stages), frame[f"tile[{block_q},{block_k}]"]
                good += guess.fits
                assert (cell.fill, cell.hatch) == tuple(LOOK[look(guess)][1].get(k, "") for k in ("fill", "hatch"))
                if guess.fits:
                    assert cell.text.startswith(f"{guess.occupancy.blocks} block")
        assert f"{good} of 25 tiles fit" in frame.caption
