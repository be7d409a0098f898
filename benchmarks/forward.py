"""Lab 07's forward kernels beside FlashAttention-3, cuDNN and flash2: ``python -m benchmarks forward``, on a Hopper.

bf16, hidden size 2,048, 16,384 tokens in all; FLOP = 4 B H N² d, half of it when causal. In every round each kernel
runs once, in an order drawn anew; a cell is the median of its rounds, and its range. Every run is kept in the result.
Steps of the ladder are timed in the same way. ``fa3-fwd`` counts where it is installed.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial

import torch

from benchmarks.backward import interleaved
from benchmarks.records import RESULTS, provenance
from flashkit.exercises import lab_cells
from flashkit.instruments.gpu_clock import GPU
from flashkit.instruments.timing import Device, median_ratio

HIDDEN, TOKENS = 2048, 16384
ROUNDS = 21
SLEEP = 2_000_000  # cycles: about a millisecond
CELLS = [(d, mask, n) for d in (64, 128) for mask in ("full", "causal") for n in (2048, 16384)]
LADDER = [(d, "full", n) for d in (64, 128) for n in (2048, 16384)]
STEPS = ("wgmma", "producer", "consumers", "two_products")
TILES = {64: (128, 128), 128: (128, 128)}  # of the descriptor kernel
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
    except ImportError:
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


def disagreement(participants: Mapping[str, Call]) -> dict[str, float]:
    """Each one's relative distance to cuDNN, or to the first without it: wrong answers are not timed."""

    def output(name: str) -> torch.Tensor:
        o = participants[name]()
        o = o[0] if isinstance(o, tuple) else o
        return (o.transpose(1, 2) if name == "fa3" else o).float()

    first = output("cudnn" if "cudnn" in participants else next(iter(participants)))
    return {name: ((output(name) - first).norm() / first.norm()).item() for name in participants}


def rates(d: int, mask: str, n: int, times: Mapping[str, list[float]], tokens: int = TOKENS, hidden: int = HIDDEN):
    """A cell: head_dim, mask, n; of each participant its median TFLOP/s and range; gluon and triton over fa3."""
    flop = 4 * tokens * n * hidden / (2 if mask == "causal" else 1)
    row: dict = {"head_dim": d, "mask": mask, "n": n}
    for name, seconds in times.items():
        each = [flop / s / 1e12 for s in seconds]
        row[name] = round(statistics.median(each), 1)
        row[f"{name}_range"] = [round(min(each), 1), round(max(each), 1)]
    if "fa3" in times:
        over = {n: median_ratio(times["fa3"], times[n]) for n in ("gluon", "triton")}
        row["over_fa3"] = {name: asdict(ratio) for name, ratio in over.items()}
    return row


def verdicts(rows: list[dict]) -> dict[str, dict]:
    """What was reached of the goals; none without FA3."""
    if not all("over_fa3" in row for row in rows):
        return {}
    gluon = [row["over_fa3"]["gluon"]["value"] for row in rows]
    long = [r["over_fa3"]["triton"]["value"] for r in rows if (r["head_dim"], r["n"]) == (128, 16384)]
    reached = dict(zip(GOALS, (min(gluon), statistics.geometric_mean(gluon), min(long)), strict=True))
    return {
        name: {"goal": goal, "reached": reached[name], "met": reached[name] >= goal} for name, goal in GOALS.items()
    }


def measure(cells: list, make: Callable, device_of: Callable[[], Device], rounds: int = ROUNDS) -> list[dict]:
    """Times of each cell; a participant's seconds are kept, round by round."""
    found = []
    for number, (d, mask, n) in enumerate(cells):
        participants = make(d, mask, n)
        wrong = {name: far for name, far in disagreement(participants).items() if not far < 1e-2}
        if wrong:
            raise RuntimeError(f"d={d} {mask} N={n}: not timed, since these answers are off: {wrong}")
        times = interleaved(participants, device_of(), rounds, seed=number)
        found.append({"head_dim": d, "mask": mask, "n": n, "seconds": times})
        row = rates(d, mask, n, times)
        print({name: value for name, value in row.items() if not name.endswith("_range")}, flush=True)
    return found


def record(run: dict, before: Mapping | None) -> dict:
    """The result file: the latest run's rows and verdicts, and every run that was ever made, second by second."""
    rows = [rates(c["head_dim"], c["mask"], c["n"], c["seconds"]) for c in run["cells"]]
    ladder = [rates(c["head_dim"], c["mask"], c["n"], c["seconds"]) for c in run["ladder"]]
    told = {name: value for name, value in run.items() if name not in ("cells", "ladder")}
    runs = [*(before or {}).get("runs", ()), run]
    return {**told, "verdicts": verdicts(rows), "rows": rows, "ladder": ladder, "runs": runs}


def main() -> int:
    if torch.cuda.get_device_capability()[0] != 9:
        print("benchmarks.forward: this GPU is no Hopper, so nothing was run")
        return 0
    path, gpu = RESULTS / "forward-h200.json", Ahead({})
    declared = f"{len(CELLS)} cells and {len(LADDER)} of the ladder, {ROUNDS} rounds each, one run"
    run = {"what": __doc__.splitlines()[0], "declared": declared, **provenance(), "state": [gpu.state()]}
    run["fa3"] = "fa3-fwd" if official() else "not installed"
    with gpu.alone():
        run["cells"] = measure(CELLS, lambda d, mask, n: calls(tensors(d, n), mask), lambda: gpu)
        run["ladder"] = measure(LADDER, lambda d, mask, n: steps(tensors(d, n)), lambda: gpu)
    run["state"].append(gpu.state())
    RESULTS.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else None
    result = record(run, before)
    path.write_text(json.dumps(result, indent=1) + "\n")
    for name, verdict in result["verdicts"].items():
        print(f"{name}: {verdict['reached']:.3f} of FA3, wanted {verdict['goal']}")
    return int(not all(verdict["met"] for verdict in result["verdicts"].values()))


if __name__ == "__main__":
    sys.exit(main())
