"""Solution, correct variants and mutants of 03.heads on a GPU: ``python -m tests.gpu [RESULT.json [correct]]``.

One process and a deadline per kernel. Mutants whose fault is an address outside a tensor are left to the
interpreter, since they would end the CUDA context; the record says so. With ``correct`` no mutant runs. Exit status
1 when the solution or a correct variant fails anywhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.records import provenance
from tests.gpu.judge import LARGE, SHAPES
from tests.labs.kernels import VARIANTS, base_source, patched
from tests.labs.mutants_03 import MUTANTS

SECONDS = 240
AT_ONCE = 6  # processes that share the GPU
ONLY_INTERPRETED = {"tail-load-unmasked", "v-tail-unmasked", "tail-store-unmasked", "int32-overflow", "borrowed-stride"}
FUNCTION = "flash_forward"


def run(name: str, source: str, which: str) -> dict:
    """One kernel in its own process: the rows that it judged, or why it ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.py"
        path.write_text(source)
        command = [sys.executable, "-m", "tests.gpu.one", str(path), FUNCTION, which]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return {"name": name, "ended": f"no answer within {SECONDS} s", "rows": []}
    if done.returncode:
        return {"name": name, "ended": done.stderr.strip().splitlines()[-1:], "rows": []}
    return {"name": name, "ended": "", "rows": json.loads(done.stdout.splitlines()[-1])}


def passed(result: dict) -> bool:
    return not result["ended"] and bool(result["rows"]) and all(row["right"] for row in result["rows"])


def jobs() -> tuple[list[tuple[str, str, str]], list[str]]:
    """(name, source, all|small) for each kernel to run, and the names of those left to the interpreter."""
    todo = [("solution", base_source("03.heads", "solution"), "all")]
    todo += [(f"variant {p.stem}", p.read_text(), "all") for p in sorted(VARIANTS.glob("heads_*.py"))]
    left = []
    for mutant in MUTANTS:
        if mutant.exercise != "03.heads" or ONLY_INTERPRETED & set(mutant.faults):
            left.append(mutant.id)
        else:
            todo.append((f"mutant {mutant.id}", patched(base_source("03.heads", mutant.base), mutant.patch), "small"))
    return todo, left


def record_of(results: list[dict], left: list[str]) -> dict:
    """What the kernels judged so far gave; ``left`` are mutants that no GPU may run."""
    must = [r for r in results if not r["name"].startswith("mutant")]
    mutants = [r for r in results if r["name"].startswith("mutant")]
    survivors = [r["name"] for r in mutants if passed(r)]
    return {
        "what": "03.heads compiled and run: answers against float64, tolerance from an honest run in the same dtype",
        "shapes": len(SHAPES),
        "largest_N": max(shape.N_q for shape in LARGE),
        "right": [r["name"] for r in must if passed(r)],
        "failed": [r for r in must if not passed(r)],
        "mutants_run": len(mutants),
        "mutants_caught": len(mutants) - len(survivors),
        "mutants_not_seen_on_this_gpu": survivors,
        "not_run": {
            "interpreter only (they leave their tensors)": left,
            "other exercises": "03.tile, 03.rows, 03.causal",
        },
        "details": results,
    }


def main(path: str = "benchmarks/results/forward-correctness.json", only: str = "") -> int:
    todo, left = jobs()
    if only == "correct":
        todo = [job for job in todo if not job[0].startswith("mutant")]
    about, results = provenance(), []
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(lambda job: run(*job), todo):
            results.append(result)
            Path(path).write_text(json.dumps({**about, **record_of(results, left)}, indent=1) + "\n")
            print(f"{len(results)} of {len(todo)}: {result['name']} {result['ended']}", flush=True)
    record = record_of(results, left)
    for result in record["failed"]:
        print("FAILED", result["name"], result["ended"], [row for row in result["rows"] if not row["right"]][:2])
    must = len(record["right"]) + len(record["failed"])
    print(f"{len(record['right'])} of {must} correct kernels right on {len(SHAPES)} shapes")
    print(f"{record['mutants_caught']} of {record['mutants_run']} mutants caught, {len(left)} left to the interpreter")
    return int(bool(record["failed"]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
