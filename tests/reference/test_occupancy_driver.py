"""reference.occupancy against the CUDA driver's own answer, for every kernel that was compiled on an H200."""

import json
from pathlib import Path

import pytest

from reference.occupancy import occupancy

RECORD = json.loads((Path(__file__).parents[2] / "benchmarks/results/prediction-h200.json").read_text())["occupancy"]


def test_enough_different_kernels_were_asked_about():
    assert len(RECORD["threads_registers_shared_blocks"]) > 60 and RECORD["different"] == 0
    assert len({blocks for *_, blocks in RECORD["threads_registers_shared_blocks"]}) > 5


@pytest.mark.parametrize("threads, registers, shared, blocks", RECORD["threads_registers_shared_blocks"])
def test_blocks_an_sm_are_the_drivers(threads, registers, shared, blocks):
    assert occupancy(90, threads // 32, registers, shared).blocks == blocks
