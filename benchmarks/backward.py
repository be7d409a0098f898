"""The teaching backward of lab 04 beside cuDNN's and SDPA flash2's: ``python -m benchmarks backward``, on a GPU.

d = 128, 16,384 tokens, 16 heads, bf16, full and causal, all three interleaved in one run. The teaching backward is
three launches without atomics: D, dK and dV, dQ; all of its time counts, as does all that autograd runs for the others.
Answers and times are got in child processes and written as they come.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict

import torch

from benchmarks import children
from benchmarks.cases import solution
from benchmarks.peer_bound import judged
from benchmarks.records import RESULTS, provenance
from flashkit.instruments import dry_run
from flashkit.instruments.gpu_clock import GPU
from flashkit.instruments.timing import WARM_UPS, Device, median_ratio

B, H, N, D = 1, 16, 16384, 128
DKDV = {"tile": (64, 64), "num_warps": 4, "num_stages": 2}
DQ = {"tile": (128, 64), "num_warps": 8, "num_stages": 3}
DRAWS, ROUNDS = 3, 5  # sets of inputs, and rounds on each
BAR = 0.60  # of cuDNN's speed; and faster than flash2
GRADIENTS = ("dq", "dk", "dv")
MASKS = {"full": False, "causal": True}
SECONDS = 240  # for the answers or the times of one mask

Call = Callable[[], object]


def tensors(seed: int, shape=(B, H, N, D), dtype=torch.bfloat16, device: str = "cuda") -> dict[str, torch.Tensor]:
    """Normal q, k, v and do of ``shape`` (B, H, N, d), the same for the same seed."""
    generator = torch.Generator(device).manual_seed(seed)
    return {n: torch.randn(shape, generator=generator, device=device).to(dtype) for n in ("q", "k", "v", "do")}


def teaching(x: Mapping[str, torch.Tensor], causal: bool, tile=(64, 64)) -> Call:
    """Gradients by the three kernels of lab 04, from what the forward of lab 03 saved."""
    scale = x["q"].shape[-1] ** -0.5
    o, lse = solution("forward")(x["q"], x["k"], x["v"], causal, 0, scale, *tile)
    row_dot, dkdv, dq = solution("row_dot"), solution("dkdv"), solution("dq")

    def backward():
        D = row_dot(o, x["do"], 64)
        given = x["q"], x["k"], x["v"], x["do"], lse, D, causal, 0, scale
        with dry_run.with_options(num_warps=DKDV["num_warps"], num_stages=DKDV["num_stages"]):
            dk, dv = dkdv(*given, *DKDV["tile"])
        with dry_run.with_options(num_warps=DQ["num_warps"], num_stages=DQ["num_stages"]):
            return dq(*given, *DQ["tile"]), dk, dv

    return backward


def library(x: Mapping[str, torch.Tensor], causal: bool, backend=None) -> Call:
    """The same by PyTorch's attention, with one backend or with its own choice; the forward is run here, once."""
    from torch.nn.attention import sdpa_kernel

    leaf = [x[n].detach().clone().requires_grad_() for n in "qkv"]
    if backend is None:
        o = torch.nn.functional.scaled_dot_product_attention(*leaf, is_causal=causal)
    else:
        with sdpa_kernel([backend]):
            o = torch.nn.functional.scaled_dot_product_attention(*leaf, is_causal=causal)
    return lambda: torch.autograd.grad(o, leaf, x["do"], retain_graph=True)


def correctness(causal: bool, device: str = "cuda", shape=(1, 2, 2048, D), dtype=torch.bfloat16) -> dict[str, dict]:
    """On a shape whose fp32 gradients PyTorch can compute from the whole matrix of scores."""
    from torch.nn.attention import SDPBackend

    x = tensors(7, shape, dtype, device)
    exact = library({n: t.float() for n, t in x.items()}, causal, SDPBackend.MATH)()
    each = zip(GRADIENTS, teaching(x, causal)(), exact, library(x, causal)(), strict=True)
    return {name: judged(*outputs) for name, *outputs in each}


def interleaved(calls: Mapping[str, Call], device: Device, rounds: int, seed: int) -> dict[str, list[float]]:
    """Device seconds a round of each call: in every round all of them, in an order of its own."""
    for call in calls.values():
        for _ in range(WARM_UPS):
            device.run(call)
    found: dict[str, list[float]] = {name: [] for name in calls}
    chance = random.Random(seed)
    for _ in range(rounds):
        order = list(calls)
        chance.shuffle(order)
        for name in order:
            found[name].append(device.run(calls[name])[0])
    return found


def told(causal: bool, times: Mapping[str, list[float]]) -> dict:
    """TFLOP/s (2.5 times the forward's, half if causal) and our speed over each library's, with its interval."""
    flop = 2.5 * 4 * B * H * N * N * D / (2 if causal else 1)
    rates = {name: round(flop / statistics.median(seconds) / 1e12, 1) for name, seconds in times.items()}
    speeds = {n: asdict(median_ratio(times[n], times["teaching"])) for n in times if n != "teaching"}
    passed = speeds["cudnn"]["value"] >= BAR and speeds["flash2"]["value"] > 1
    return {"causal": causal, "tflops": rates, "speed_over": speeds, "passed": passed, "seconds": times}


def measure(causal: bool) -> dict:
    """All three participants on each draw of inputs, interleaved: see :func:`told`."""
    from torch.nn.attention import SDPBackend

    times: dict[str, list[float]] = {}
    for seed in range(DRAWS):
        x = tensors(seed)
        calls = {
            "teaching": teaching(x, causal),
            "cudnn": library(x, causal, SDPBackend.CUDNN_ATTENTION),
            "flash2": library(x, causal, SDPBackend.FLASH_ATTENTION),
        }
        with GPU(x).alone() as gpu:
            for name, seconds in interleaved(calls, gpu, ROUNDS, seed).items():
                times.setdefault(name, []).extend(seconds)
    return told(causal, times) | {"state": gpu.state()}


def one(case: str) -> dict:
    """In the child: "answers causal" or "times causal"."""
    what, mask = case.split()
    return {"found": (correctness if what == "answers" else measure)(MASKS[mask])}


def add(record: dict, found: dict) -> None:
    """Files what a child found, or why it found nothing."""
    what, mask = found["case"].split()
    if "ended" in found:
        record["ended"].append(found)
    elif what == "answers":
        record["correctness"][mask] = found["found"]
    else:
        record["results"].append(found["found"])


def passed(record: dict) -> bool:
    answers = [row for rows in record["correctness"].values() for row in rows.values()]
    complete = set(record["correctness"]) == set(MASKS) and len(record["results"]) == len(MASKS)
    return complete and all(row["right"] for row in answers) and all(r["passed"] for r in record["results"])


def main() -> int:
    RESULTS.mkdir(parents=True, exist_ok=True)
    record: dict = {
        "what": f"backward, bf16, B={B} H={H} N={N} d={D}; medians of {DRAWS * ROUNDS} interleaved rounds",
        **provenance(),
        "tiles": {"dkdv": DKDV, "dq": DQ},
        "bar": f"at least {BAR} of cuDNN's speed, and faster than flash2",
        "correctness": {},
        "results": [],
        "ended": [],
    }

    def told_by_a_child(found: dict) -> None:
        add(record, found)
        (RESULTS / "backward-h200.json").write_text(json.dumps(record, indent=1) + "\n")
        print({name: value for name, value in found.get("found", found).items() if name != "seconds"}, flush=True)

    cases = [f"{what} {mask}" for what in ("answers", "times") for mask in MASKS]
    children.run("benchmarks.backward", [[case] for case in cases], SECONDS, told_by_a_child)
    return int(not passed(record))


if __name__ == "__main__":
    sys.exit(children.start(main, one))
