"""The record of labs 01 to 04 on an H200: every output is right, and README tells what it was measured by."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks/results/labs-correctness-h200.json").read_text())


def test_the_readme_tells_how_many_outputs_had_pytorch_s_error_beside_them():
    rows, readme = RECORD["rows"], " ".join((ROOT / "README.md").read_text().split())
    beside = [row["error"] / row["peer"] for row in rows if "peer" in row]
    assert all(row["right"] for row in rows) and not RECORD["ended"] and max(beside) <= 1.5
    assert f"all {len(rows)} outputs of labs 01 to 04 were right" in readme
    assert f"{len(beside)} within 1.5 times PyTorch's own error" in readme
    assert {row["output"] for row in rows if "peer" not in row} == {"lse", "D"} and "the others, lse and D" in readme
