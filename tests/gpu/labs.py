"""Solutions of labs 01 to 04 on a GPU, fp16 and bf16, up to 16,384 tokens: ``python -m tests.gpu.labs [RESULT.json]``.

References are float64. The bound is relative to a peer on the same inputs: an error may be 1.5 times that of PyTorch's
own attention and its autograd (rows: PyTorch's softmax) in the same dtype, since a fixed bound would pass bad kernels
on long sequences and fail good ones on short. Processes share the shapes, since most of the time is the compiler's; one
that hangs or dies is told and costs no other, and the record is written after every shape. Exit status 1 when anything
is beyond the bound.
"""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch

import flashkit  # noqa: F401  before Triton
from benchmarks import children
from benchmarks.peer_bound import FACTOR, judged
from tests.labs.kernels import load

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
TOKENS = (16, 77, 128, 333, 1000, 2048, 4097, 16384)
TILES = (64, 64)
GRADIENTS = ("dq", "dk", "dv")
SECONDS = 240  # for a shape: a dozen kernels are compiled first
AT_ONCE = 6  # processes; at 16,384 tokens each keeps some 15 GB of the GPU's memory for its float64 reference


@dataclass(frozen=True)
class Shape:
    """One call: ``sharpness`` multiplies Q, so that 4 gives weights near one key."""

    N: int
    d: int = 64
    dtype: str = "bf16"
    causal: bool = False
    H_q: int = 2
    H_kv: int = 2
    sharpness: float = 1.0

    @property
    def scale(self) -> float:
        return self.d**-0.5


def shapes() -> list[Shape]:
    found = []
    for dtype in DTYPES:
        for N in TOKENS:
            for causal in (False, True):
                found.append(Shape(N, 64, dtype, causal))
                found.append(Shape(N, 128, dtype, causal, sharpness=4.0))
        found.append(Shape(1000, 64, dtype, True, H_q=4, H_kv=2))
    return found


def inputs(shape: Shape, device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(zlib.crc32(repr(shape).encode()))

    def draw(heads: int, factor: float = 1.0) -> torch.Tensor:
        x = torch.randn((1, heads, shape.N, shape.d), generator=generator, device=device) * factor
        return x.to(DTYPES[shape.dtype])

    q, k, v = draw(shape.H_q, shape.sharpness), draw(shape.H_kv), draw(shape.H_kv)
    return {"q": q, "k": k, "v": v, "do": draw(shape.H_q)}


def dense(x: dict[str, torch.Tensor], shape: Shape) -> dict[str, torch.Tensor]:
    """Attention and its gradients in float64, head by head, from the formulas: o, lse, D, dq, dk, dv."""
    found = {n: torch.zeros_like(x[n[-1]], dtype=torch.float64) for n in ("dq", "dk", "dv")}
    found |= {"o": torch.zeros_like(x["do"], dtype=torch.float64)}
    found |= {n: torch.zeros(x["q"].shape[:3], dtype=torch.float64, device=x["q"].device) for n in ("lse", "D")}
    hidden = torch.ones(shape.N, shape.N, dtype=torch.bool, device=x["q"].device).triu(1) if shape.causal else None
    for h in range(shape.H_q):
        g = h // (shape.H_q // shape.H_kv)
        q, do, k, v = x["q"][0, h].double(), x["do"][0, h].double(), x["k"][0, g].double(), x["v"][0, g].double()
        S = q @ k.T * shape.scale
        if hidden is not None:
            S.masked_fill_(hidden, float("-inf"))
        lse = torch.logsumexp(S, -1)
        P = S.sub_(lse[:, None]).exp_()
        o = P @ v
        D = (o * do).sum(-1)
        found["o"][0, h], found["lse"][0, h], found["D"][0, h] = o, lse, D
        found["dv"][0, g] += P.T @ do
        dS = P * (do @ v.T - D[:, None])
        found["dq"][0, h] = dS @ k * shape.scale
        found["dk"][0, g] += dS.T @ q * shape.scale
    return found


def peer(x: dict[str, torch.Tensor], shape: Shape) -> dict[str, torch.Tensor]:
    """PyTorch's attention and its autograd in the shape's dtype."""
    leaf = {n: x[n].detach().requires_grad_() for n in "qkv"}
    group = shape.H_q // shape.H_kv
    k, v = (leaf[n].repeat_interleave(group, dim=1) for n in "kv")
    o = torch.nn.functional.scaled_dot_product_attention(leaf["q"], k, v, is_causal=shape.causal, scale=shape.scale)
    gradients = torch.autograd.grad(o, [leaf[n] for n in "qkv"], x["do"])
    return {"o": o.detach(), **dict(zip(GRADIENTS, gradients, strict=True))}


def exact(name: str, came: torch.Tensor, reference: torch.Tensor) -> dict:
    """An output in fp32, whose error is that of fp32 sums."""
    error, allowed = (came.double() - reference).abs().max().item(), 2e-5 * (1 + reference.abs().max().item())
    return {"output": name, "error": error, "allowed": allowed, "right": bool(error <= allowed)}


def attention_rows(shape: Shape, device: str, tiles=TILES) -> list[dict]:
    """03.heads, the three kernels of 04 and its autograd function on one shape."""
    x = inputs(shape, device)
    truth, low = dense(x, shape), peer(x, shape)
    options = (shape.causal, 0, shape.scale, *tiles)
    o, lse = load("03.heads", "solution")(x["q"], x["k"], x["v"], *options)
    saved = truth["lse"].float(), truth["D"].float()
    D = load("04.row_dot", "solution")(truth["o"].to(o.dtype), x["do"], tiles[0])
    dk, dv = load("04.dkdv", "solution")(x["q"], x["k"], x["v"], x["do"], *saved, *options)
    dq = load("04.dq", "solution")(x["q"], x["k"], x["v"], x["do"], *saved, *options)
    leaf = [x[n].detach().requires_grad_() for n in "qkv"]
    out = load("04.attention", "solution")(*leaf, *options)
    by_autograd = (out.detach(), *torch.autograd.grad(out, leaf, x["do"]))
    rounded = (truth["o"].to(o.dtype).double() * x["do"].double()).sum(-1)
    rows = [("03.heads", "o", o), ("04.dkdv", "dk", dk), ("04.dkdv", "dv", dv), ("04.dq", "dq", dq)]
    rows += [("04.attention", n, y) for n, y in zip(("o", *GRADIENTS), by_autograd, strict=True)]
    found = [{"exercise": id, "output": n, **judged(y, truth[n], low[n])} for id, n, y in rows]
    found.append({"exercise": "03.heads", **exact("lse", lse, truth["lse"])})
    return [*found, {"exercise": "04.row_dot", **exact("D", D, rounded)}]


def one_head_rows(shape: Shape, device: str, tiles=TILES) -> list[dict]:
    """01.naive_attention, 03.rows and 03.causal; 03.tile where one tile holds it all."""
    x = inputs(shape, device)
    truth, low = dense(x, shape)["o"][0, 0], peer(x, shape)["o"][0, 0]
    q, k, v = (x[n][0, 0] for n in "qkv")
    if shape.causal:
        calls, peers = {"03.causal": (0, *tiles)}, {}
    else:
        calls = {"01.naive_attention": tiles, "03.rows": tiles} | ({"03.tile": tiles} if shape.N <= min(tiles) else {})
        peers = {
            "01.naive_attention": (q @ k.T * shape.scale).softmax(-1) @ v
        }  # S and P in the dtype, as it keeps them
    found = []
    for id, options in calls.items():
        o = load(id, "solution")(q, k, v, *options)
        found.append({"exercise": id, "output": "o", **judged(o, truth, peers.get(id, low))})
    return found


def softmax_rows(shape: Shape, device: str, block: int = 128) -> list[dict]:
    """01.softmax and 02.softmax on N columns, 02.weighted_sum against values of width d."""
    x = inputs(shape, device)
    s, v = (x["q"][0, 0] @ x["k"][0, 0].T)[:64].contiguous(), x["v"][0, 0]
    P, low = torch.softmax(s.double(), -1), torch.softmax(s, -1)
    came = {
        "01.softmax": (load("01.softmax", "solution")(s), P, low),
        "02.softmax": (load("02.softmax", "solution")(s, block), P, low),
        "02.weighted_sum": (load("02.weighted_sum", "solution")(s, v, block), P @ v.double(), low @ v),
    }
    return [{"exercise": id, "output": "y" if "softmax" in id else "o", **judged(*row)} for id, row in came.items()]


def rows_of(shape: Shape, device: str = "cuda") -> list[dict]:
    found = attention_rows(shape, device)
    if shape.H_q == shape.H_kv:
        found += one_head_rows(shape, device) + (softmax_rows(shape, device) if not shape.causal else [])
    return [{**vars(shape), **row} for row in found]


def jobs() -> list[list[str]]:
    """The shapes by number, dealt out to processes: those of 16,384 tokens fall to different ones."""
    numbers = sorted(range(len(shapes())), key=lambda n: -shapes()[n].N)
    return [list(map(str, numbers[part::AT_ONCE])) for part in range(AT_ONCE)]


def one(number: str) -> dict:
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    return {"rows": rows_of(shapes()[int(number)])}


def record_of(rows: list[dict], ended: list[dict]) -> dict:
    """What was found so far; ``ended`` are shapes that hung or died."""
    return {
        "what": f"solutions of labs 01 to 04 against float64; allowed: {FACTOR} times the error of PyTorch's own",
        "outputs": len(rows),
        "largest_N": max((row["N"] for row in rows), default=0),
        "exercises": sorted({row["exercise"] for row in rows}),
        "worst_ratio_to_peer": max((row["error"] / row["peer"] for row in rows if row.get("peer")), default=0.0),
        "wrong": [row for row in rows if not row["right"]],
        "ended": ended,
        "rows": rows,
    }


def main(path: str = "benchmarks/results/labs-correctness.json") -> int:
    from benchmarks.records import provenance

    about, rows, ended = provenance(), [], []

    def told(found: dict) -> None:
        rows.extend(found.get("rows", ()))
        if "ended" in found:
            ended.append({**vars(shapes()[int(found["case"])]), "ended": found["ended"]})
            print("ENDED", ended[-1], flush=True)
        for row in found.get("rows", ()):
            if not row["right"]:
                print("BEYOND THE BOUND", row, flush=True)
        print(f"shape {found['case']}: {len(rows)} outputs so far", flush=True)
        Path(path).write_text(json.dumps({**about, **record_of(rows, ended)}, indent=1) + "\n")

    children.run("tests.gpu.labs", jobs(), SECONDS, told, AT_ONCE)
    record = record_of(rows, ended)
    within = record["outputs"] - len(record["wrong"])
    print(f"{within} of {record['outputs']} outputs within the bound, {len(record['exercises'])} exercises")
    print(f"{len(ended)} shapes hung or died")
    return int(bool(record["wrong"] or ended or not rows))


if __name__ == "__main__":
    sys.exit(children.start(main, one))
