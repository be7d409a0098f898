"""Lab 07's forward kernels beside FlashAttention-3, cuDNN and flash2: ``python -m benchmarks forward``, on a Hopper.

bf16, hidden size 2,048, 16,384 tokens in all; FLOP = 4 B H N² d, half of it when causal. In every round each kernel
runs once, in an order drawn anew; a cell is the median of its rounds, and its range. Every run is kept in the result.
Steps of the ladder are timed in the same way. ``fa3-fwd`` counts where it is installed; without it nothing is claimed.

All cells are timed in one child process and written one by one. A participant that hangs, dies, is refused or answers
wrong is named and left out, and the others are timed without it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial

import torch

from benchmarks import children
from benchmarks.backward import interleaved
from benchmarks.records import RESULTS, need_hopper, provenance
from flashkit.exercises import lab_cells
from flashkit.instruments.gpu_clock import GPU
from flashkit.instruments.timing import Device, median_ratio

HIDDEN, TOKENS = 2048, 16384
ROUNDS = 21
SECONDS = 120  # for a participant's first call, which compiles it, and for the rounds of a cell
WITHOUT = "--without"
FAR = 1e-2  # from cuDNN: a wrong answer is not timed
SLEEP = 4_000_000  # cycles: about two milliseconds
CELLS = [(d, mask, n) for d in (64, 128) for mask in ("full", "causal") for n in (2048, 16384)]
LADDER = [(d, "full", n) for d in (64, 128) for n in (2048, 16384)]
STEPS = ("wgmma", "producer", "consumers", "two_products")
TILES = {64: (128, 128), 128: (64, 64)}  # of the descriptor kernel
GOALS = {"gluon in each cell": 0.92, "gluon in the geometric mean": 0.96, "triton at d=128, N=16384": 0.72}

Call = Callable[[], object]


class Ahead(GPU):
    """The timer's GPU, asleep until the host has launched the call: a descriptor costs the host more than the GPU."""

    def run(self, call) -> tuple[float, float]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(SLEEP)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3, 0.0


def tensors(d: int, n: int, device: str = "cuda", dtype=torch.bfloat16, tokens: int = TOKENS, hidden: int = HIDDEN):
    """Normal q, k, v of shape (tokens / n, hidden / d, n, d)."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (tokens // n, hidden // d, n, d)
    return {name: torch.randn(shape, generator=generator, device=device).to(dtype) for name in "qkv"}


def solution(step: str) -> Callable:
    """The course's function of exercise 07.``step``."""
    names = {"descriptors": "flash_descriptors", "gluon": "gluon_forward"}
    return lab_cells.solution(f"07.{step}", names.get(step, f"gluon_{step}"))


def calls(x: Mapping[str, torch.Tensor], mask: str) -> dict[str, Call]:
    """Every participant on the same values; FA3 has its own layout, (B, N, H, d), made beforehand."""
    from torch.nn.attention import SDPBackend

    q, k, v = x.values()
    d, causal = q.shape[3], mask == "causal"
    gluon, triton = solution("gluon"), solution("descriptors")
    found = {
        "gluon": lambda: gluon(q, k, v, causal, 0, d**-0.5),
        "triton": lambda: triton(q, k, v, causal, 0, d**-0.5, *TILES[d]),
        "cudnn": _sdpa(x, causal, SDPBackend.CUDNN_ATTENTION),
        "flash2": _sdpa(x, causal, SDPBackend.FLASH_ATTENTION),
    }
    if fa3 := official():
        rows_first = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
        found["fa3"] = lambda: fa3(*rows_first, causal=causal)
    return found


def official() -> Callable | None:
    """FlashAttention-3's own forward, from the package fa3-fwd."""
    try:
        return importlib.import_module("fa3_fwd_interface").flash_attn_func
    except (ImportError, OSError) as error:  # not installed, or built for another torch
        print(f"fa3 is left out: {error}", file=sys.stderr, flush=True)
        return None


def _sdpa(x: Mapping[str, torch.Tensor], causal: bool, backend) -> Call:
    from torch.nn.attention import sdpa_kernel

    def call():
        with sdpa_kernel([backend]):
            return torch.nn.functional.scaled_dot_product_attention(*x.values(), is_causal=causal)

    return call


def steps(x: Mapping[str, torch.Tensor]) -> dict[str, Call]:
    """The ladder: the four steps, and the whole kernel."""
    q, k, v = x.values()
    d = q.shape[3]
    found: dict[str, Call] = {step: partial(solution(step), q, k, v, d**-0.5) for step in STEPS}
    return {**found, "gluon": partial(solution("gluon"), q, k, v, False, 0, d**-0.5)}


def off(participants: Mapping[str, Call]) -> dict[str, str]:
    """Why participants are not timed: refused, or far from cuDNN (or from the first that answers, without it).

    What is called next is told beforehand, so that who asks knows which one never came back.
    """
    told, first = {}, None
    for name in sorted(participants, key=lambda name: name != "cudnn"):
        children.tell({"at": name})
        try:
            o = participants[name]()
        except Exception as error:  # a backend that does not take the shape, a compiler that refuses
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # raises again if the kernel has broken this process
            told[name] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        o = o[0] if isinstance(o, tuple) else o
        o = (o.transpose(1, 2) if name == "fa3" else o).float()
        first = o if first is None else first
        far = ((o - first).norm() / first.norm()).item()
        if not far < FAR:
            told[name] = f"{far:.3g} from the others' answer"
    children.tell({"at": ""})
    return told


def rates(d: int, mask: str, n: int, times: Mapping[str, list[float]], tokens: int = TOKENS, hidden: int = HIDDEN):
    """A cell: head_dim, mask, n; of each participant its median TFLOP/s and range; gluon and triton over fa3."""
    flop = 4 * tokens * n * hidden / (2 if mask == "causal" else 1)
    row: dict = {"head_dim": d, "mask": mask, "n": n}
    for name, seconds in times.items():
        each = [flop / s / 1e12 for s in seconds]
        row[name] = round(statistics.median(each), 1)
        row[f"{name}_range"] = [round(min(each), 1), round(max(each), 1)]
    if "fa3" in times:
        over = {n: median_ratio(times["fa3"], times[n]) for n in ("gluon", "triton") if n in times}
        row["over_fa3"] = {name: asdict(ratio) for name, ratio in over.items()}
    return row


def verdicts(rows: list[dict]) -> dict[str, dict]:
    """What was reached of the goals by rows of all cells; none without FA3. Who was not timed reached nothing."""
    if [(row["head_dim"], row["mask"], row["n"]) for row in rows] != CELLS or not all("over_fa3" in r for r in rows):
        return {}

    def speed(row: dict, name: str) -> float:
        return row["over_fa3"].get(name, {}).get("value", 0.0)

    gluon = [speed(row, "gluon") for row in rows]
    long = [speed(row, "triton") for row in rows if (row["head_dim"], row["n"]) == (128, 16384)]
    mean = statistics.geometric_mean(gluon) if min(gluon) > 0 else 0.0
    reached = dict(zip(GOALS, (min(gluon), mean, min(long)), strict=True))
    return {
        name: {"goal": goal, "reached": reached[name], "met": reached[name] >= goal} for name, goal in GOALS.items()
    }


def measure(participants: Mapping[str, Call], device: Device, seed: int, rounds: int = ROUNDS) -> dict:
    """Times of a cell: a participant's seconds, round by round, and why others were not timed."""
    left_out = off(participants)
    kept = {name: call for name, call in participants.items() if name not in left_out}
    return {"seconds": interleaved(kept, device, rounds, seed), "left_out": left_out}


def names() -> list[str]:
    """Of all cells, in the order in which they are timed: "cells 128 causal 2048", "ladder 64 full 16384"."""
    return [f"{kind} {d} {mask} {n}" for kind, of in (("cells", CELLS), ("ladder", LADDER)) for d, mask, n in of]


def in_this_process(cells: Iterable[str], without: Iterable[str]) -> None:
    """The child: tells each cell as it is timed, with the GPU's state after it."""
    gpu = Ahead({})
    with gpu.alone():
        for name in cells:
            kind, d, mask, n = name.split()
            x = tensors(int(d), int(n))
            participants = calls(x, mask) if kind == "cells" else steps(x)
            kept = {p: call for p, call in participants.items() if p not in without}
            found = measure(kept, gpu, names().index(name))
            children.tell({"case": name, "head_dim": int(d), "mask": mask, "n": int(n), **found, "state": gpu.state()})


def collect(told: Callable[[dict], None], run: Callable[..., str] = children.child) -> list[str]:
    """Times all cells in a child, and in a new one from where the last one ended; says what was left out for that."""
    left, without, ended, at = names(), [], [], ""

    def heard(found: dict) -> None:
        nonlocal at
        at = found.get("at", at)
        if "case" in found:
            left.remove(found["case"])
            told(found)

    while left:
        command = [sys.executable, "-m", "benchmarks.forward", WITHOUT, ",".join(without), children.FLAG, *left]
        why = run(command, SECONDS, heard)
        if not left:
            break
        ended.append(f"{left[0]}, {at or 'its rounds'}: {why}")
        if at and at not in without:
            without.append(at)  # the same cell again, without the one that did not come back
        else:
            left.pop(0)
        at = ""
    return ended


def record(run: dict, before: Mapping | None) -> dict:
    """The result file: the latest run's rows and verdicts, and every run that was ever made, second by second."""
    rows = [rates(c["head_dim"], c["mask"], c["n"], c["seconds"]) for c in run["cells"]]
    ladder = [rates(c["head_dim"], c["mask"], c["n"], c["seconds"]) for c in run["ladder"]]
    told = {name: value for name, value in run.items() if name not in ("cells", "ladder")}
    runs = [*(before or {}).get("runs", ()), run]
    return {**told, "verdicts": verdicts(rows), "rows": rows, "ladder": ladder, "runs": runs}


def main() -> int:
    need_hopper()
    path = RESULTS / "forward-h200.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else None
    declared = f"{len(CELLS)} cells and {len(LADDER)} of the ladder, {ROUNDS} rounds each, one run"
    run: dict = {"what": __doc__.splitlines()[0], "declared": declared, **provenance(), "cells": [], "ladder": []}
    run["fa3"] = f"fa3-fwd {importlib.metadata.version('fa3-fwd')}" if official() else "not there"
    print(f"FlashAttention-3: {run['fa3']}", flush=True)

    def told(found: dict) -> None:
        run[found.pop("case").split()[0]].append(found)
        path.write_text(json.dumps(record(run, before), indent=1) + "\n")
        row = rates(found["head_dim"], found["mask"], found["n"], found["seconds"])
        print({name: v for name, v in row.items() if not name.endswith("_range")}, found["left_out"], flush=True)

    run["ended"] = collect(told)
    result = record(run, before)
    path.write_text(json.dumps(result, indent=1) + "\n")
    for line in run["ended"]:
        print("ENDED", line)
    for name, verdict in result["verdicts"].items():
        print(f"{name}: {verdict['reached']:.3f} of FA3, wanted {verdict['goal']}")
    if not result["verdicts"]:
        print("No goal is judged: that needs FlashAttention-3 (pip install --no-deps fa3-fwd) in every cell.")
    return int(bool(run["ended"]) or not all(verdict["met"] for verdict in result["verdicts"].values()))


if __name__ == "__main__":
    if sys.argv[1:2] == [WITHOUT]:
        in_this_process(sys.argv[4:], sys.argv[2].split(","))
    else:
        sys.exit(main())
