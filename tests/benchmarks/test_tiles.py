"""The table of tiles: made anew for a part of it, it shows the same directions; README shows what is recorded."""

import json
from pathlib import Path

import pytest

from benchmarks import tiles
from flashkit.instruments.resources import ARCHITECTURES

ROOT = Path(__file__).parents[2]
RECORD = json.loads(tiles.RESULT.read_text())
ROWS = {(row["kernel"], row["tile"], row["arch"]): row for row in RECORD["rows"]}


def test_the_record_holds_every_kernel_tile_and_architecture():
    assert len(ROWS) == len(RECORD["rows"]) == 4 * 4 * 6
    assert {key[0] for key in ROWS} == set(tiles.TILES) and {key[2] for key in ROWS} == set(ARCHITECTURES)
    assert RECORD["versions"]["triton"] and RECORD["sizes"] == tiles.SIZES


def test_readme_shows_the_recorded_table():
    assert tiles.markdown(RECORD["rows"]) in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_larger_tiles_hold_fewer_blocks_and_need_more_registers(arch):
    small, large = (ROWS["forward", tile, arch] for tile in ("32x32", "128x64"))
    assert small["registers"] <= large["registers"] and small["blocks"] > large.get("blocks", 0)
    assert small["shared"] < large["shared"]


def test_each_architecture_has_its_own_matrix_instruction():
    found = [ROWS["forward", "64x64", arch]["matrix"] for arch in ARCHITECTURES]
    assert [name.split()[0] for name in found] == ["mma.sync", "mma.sync", "mma.sync", "wgmma", "tcgen05", "mma.sync"]


@pytest.mark.alone
def test_made_anew_a_part_shows_the_same_directions():
    """Another Triton moves registers by some; it does not turn which tile spills or what is larger."""
    for tile in ((32, 32), (128, 128)):
        for row in tiles.table("forward", tile, archs=(80, 90)):
            kept = ROWS["forward", f"{tile[0]}x{tile[1]}", row["arch"]]
            assert row["kind"] == kept["kind"] and bool(row["spills"]) == bool(kept["spills"])
            assert abs(row["registers"] - kept["registers"]) <= 0.25 * kept["registers"]
            assert row["blocks"] > 0 and row["predicted_ms"] == pytest.approx(kept["predicted_ms"], rel=0.3)
