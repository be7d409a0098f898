"""Six architectures by four tiles, of the forward and the three backward kernels: ``python -m benchmarks tiles``.

No GPU is needed: the compiler answers, occupancy follows, and times are predicted, not measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.cases import Case, buffers, call, solution
from benchmarks.records import commit, versions
from benchmarks.workloads import works
from flashkit.instruments import dry_run
from flashkit.instruments.resources import ARCHITECTURES, Resources, resources
from flashkit.instruments.roofline import predict
from reference.machines import OF_ARCH

RESULT = Path(__file__).parent / "results" / "tiles.json"
SQUARE = ((32, 32), (64, 64), (128, 64), (128, 128))
TILES = {"forward": SQUARE, "row_dot": ((32, 0), (64, 0), (128, 0), (256, 0)), "dkdv": SQUARE, "dq": SQUARE}
SIZES = {"N": 4096, "d": 64, "B": 4, "H": 16}


def case_of(kernel: str, tile: tuple[int, int]) -> Case:
    """The table's call of a kernel with a tile; a second side of 0 stands for none."""
    return Case("tiles", kernel, **SIZES, block_q=tile[0], block_k=tile[1] or tile[0])


def table(kernel: str, tile: tuple[int, int], archs: Iterable[int] = ARCHITECTURES) -> list[dict]:
    """One record an architecture; ``kind`` other than "ok" says why there are no figures."""
    case = case_of(kernel, tile)
    (launch,) = dry_run.launches(call(case, solution(kernel), buffers(case, "meta")))
    return [record(kernel, case, row) for row in resources(launch, archs=archs)]


def record(kernel: str, case: Case, row: Resources) -> dict:
    """Registers, spills and shared memory from the compiler; the rest follows."""
    found = {"kernel": kernel, "tile": case.tile, "arch": row.arch, "kind": row.kind}
    if not row.ok:
        return found | {"why": row.message[:160]}
    held = row.occupancy
    return found | {
        "registers": row.registers,
        "spills": row.spills,
        "shared": row.shared,
        "blocks": held.blocks,
        "binds": list(held.binds),
        "matrix": row.matrix,
        "predicted_ms": predicted_ms(case, row),
    }


def predicted_ms(case: Case, row: Resources) -> float | None:
    """Predicted milliseconds on the GPU of the row's architecture; None where not one block fits."""
    if not row.occupancy.blocks:
        return None
    (work,) = works(case)
    return round(predict(row, work, OF_ARCH[row.arch]).seconds * 1e3, 4)


def markdown(records: list[dict], kernel: str = "forward") -> str:
    """The table of one kernel as README shows it: registers, spills, blocks an SM and what binds."""
    tiles = list(dict.fromkeys(r["tile"] for r in records if r["kernel"] == kernel))
    lines = ["| tile | " + " | ".join(f"sm_{arch}" for arch in ARCHITECTURES) + " |"]
    lines.append("|---" * (len(ARCHITECTURES) + 1) + "|")
    for tile in tiles:
        cells = [
            r for arch in ARCHITECTURES for r in records if (r["kernel"], r["tile"], r["arch"]) == (kernel, tile, arch)
        ]
        lines.append(f"| {tile.replace('x', ' x ')} | " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(r: dict) -> str:
    if r["kind"] != "ok":
        return "does not fit" if "out of resource" in r["why"] else r["kind"]
    spilled = f" + {r['spills']} B spilled" if r["spills"] else ""
    return f"{r['registers']}{spilled}; {r['blocks']} ({', '.join(r['binds'])})"


def main() -> int:
    records = []
    for kernel, tiles in TILES.items():
        for tile in tiles:
            records += table(kernel, tile)
            print(kernel, tile, [r.get("registers", r["kind"]) for r in records[-len(ARCHITECTURES) :]], flush=True)
    told = {
        "what": "resources by the compiler and predicted milliseconds, fp16, full mask; nothing here was measured",
        "sizes": SIZES,
        "machines": {arch: machine.name for arch, machine in OF_ARCH.items()},
        "versions": versions(),
        "commit": commit(),
        "rows": records,
    }
    RESULT.write_text(json.dumps(told, indent=1) + "\n")
    print(markdown(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
