"""Chapter 3: the loop orders of FlashAttention 1 and 2 side by side, with the bytes that each has moved so far."""

from __future__ import annotations

from dataclasses import dataclass

from flashkit.figures.example import example
from flashkit.figures.figure import Figure
from flashkit.figures.ledger import Moved, size
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from reference.forward import Problem, Trace, tiled, tiled_fa1

STATISTIC = 4  # bytes of one m, l or lse: kept in fp32
WIDTH, TILES_TOP, TILES_HIGH = 960, 92, 168
PANEL = 470
TENSORS = {"FA1": ("Q", "K", "V", "O", "l, m"), "FA2": ("Q", "K", "V", "O", "lse")}


@dataclass
class Step:
    """One visited tile of an order: the bytes after it, and what is said of it."""

    i: int
    j: int
    moved: Moved
    says: str


def loop_orders(problem: Problem | None = None, itemsize: int = 2) -> Figure:
    """FlashAttention 1 and 2 walk the same tiles, one visit a step each, with loaded and stored bytes per tensor.

    ``problem`` is a :class:`reference.forward.Problem`, by default the 5 tokens in tiles of 4, full. ``itemsize`` is
    the bytes of an element of Q, K, V, O; l, m and lse are fp32. Rows past the end are not counted.
    """
    problem = example(causal=False) if problem is None else problem
    orders = {"FA1": fa1_steps(problem, itemsize), "FA2": fa2_steps(problem, itemsize)}
    scene = Scene(
        f"Two loop orders over the same {problem.query_tiles} × {problem.key_tiles} tiles",
        "FlashAttention-1 keeps a key tile and lets O, l and m make a round trip at each visit; "
        "FlashAttention-2 keeps a query tile, reads K and V again, and writes O once; their bytes add up side by side.",
        WIDTH,
        TILES_TOP + problem.query_tiles * _cell(problem) + 300,
    )
    for at in range(len(orders["FA1"])):
        frame = scene.frame(
            " ".join(f"{name}: {steps[at].says}" for name, steps in orders.items()), str(at) if at else "start"
        )
        for x, (name, steps) in zip((0, WIDTH - PANEL), orders.items(), strict=True):
            _Panel(frame, x, name, problem).draw(steps, at)
    return Figure(scene)


def fa1_steps(p: Problem, itemsize: int) -> list[Step]:
    """The visits of Algorithm 1 of FlashAttention, key tiles outside, after a step 0 that moves nothing."""
    d_v, moved = p.V.shape[1], Moved()
    steps = [Step(-1, -1, moved, "O, l and m start as 0, 0 and −∞ in HBM (not counted).")]
    held = None
    for i, j in _order(p, tiled_fa1):
        moved, rows, keys = moved.next(), len(p.rows(i)), _keys(p, j)
        arrived = held != j
        if arrived:
            moved.load("K", keys * p.K.shape[1] * itemsize)
            moved.load("V", keys * d_v * itemsize)
        held = j
        moved.load("Q", rows * p.Q.shape[1] * itemsize)
        for go in (moved.load, moved.store):
            go("O", rows * d_v * itemsize)
            go("l, m", rows * 2 * STATISTIC)
        new = f"loads K{j}, V{j}; then " if arrived else f"K{j}, V{j} stay; "
        steps.append(Step(i, j, moved, f"{new}Q{i}, O{i}, l, m come in, O{i}, l, m go back."))
    return steps


def fa2_steps(p: Problem, itemsize: int) -> list[Step]:
    """The visits of Algorithm 1 of FlashAttention-2, query tiles outside, after a step 0 that moves nothing."""
    d_v = p.V.shape[1]
    moved = Moved()
    steps = [Step(-1, -1, moved, "needs no start values in HBM.")]
    order = _order(p, tiled)
    for at, (i, j) in enumerate(order):
        moved, rows, keys = moved.next(), len(p.rows(i)), _keys(p, j)
        arrived = at == 0 or order[at - 1][0] != i
        if arrived:
            moved.load("Q", rows * p.Q.shape[1] * itemsize)
        moved.load("K", keys * p.K.shape[1] * itemsize)
        moved.load("V", keys * d_v * itemsize)
        last = at + 1 == len(order) or order[at + 1][0] != i
        if last:
            moved.store("O", rows * d_v * itemsize)
            moved.store("lse", rows * STATISTIC)
        says = (f"loads Q{i}; " if arrived else f"Q{i} stays; ") + f"K{j}, V{j} come in"
        steps.append(Step(i, j, moved, says + (f"; O{i} and lse are written once." if last else ".")))
    return steps


def _order(p: Problem, run) -> list[tuple[int, int]]:
    trace = Trace()
    run(p, trace=trace)
    return [(e.i, e.j) for e in trace.events]


def _keys(p: Problem, j: int) -> int:
    return min(p.block_k, len(p.K) - j * p.block_k)


def _cell(p: Problem) -> float:
    return min(56, 300 / p.key_tiles, TILES_HIGH / p.query_tiles)


class _Panel:
    """One order: its name, the tiles with the number of their visit, its table of bytes."""

    def __init__(self, frame: Frame, x: float, name: str, problem: Problem):
        self.frame, self.x, self.name, self.p = frame, x, name, problem
        self.cell = _cell(problem)
        self.table = TILES_TOP + problem.query_tiles * self.cell + 40

    def draw(self, steps: list[Step], at: int) -> None:
        outside = {"FA1": "FlashAttention-1: K, V outside", "FA2": "FlashAttention-2: Q outside"}[self.name]
        self.frame.text(f"{self.name} title", self.x + 16, 26, outside, align="start", bold=True, size=19)
        self._tiles(steps, at)
        self._table(steps[at].moved)

    def _tiles(self, steps: list[Step], at: int) -> None:
        c, left, top, now = self.cell, self.x + 96, TILES_TOP, steps[at]
        when = {(s.i, s.j): n for n, s in enumerate(steps[: at + 1]) if n}
        for j in range(self.p.key_tiles):
            held = j == now.j
            text = f"K{j}" if c >= 36 else ""
            self._rect(f"K[{j}]", left + j * c, top - 40, c, 34, text, fill="K", strength=1 if held else PALE)
        for i in range(self.p.query_tiles):
            held = i == now.i
            text = f"Q{i}" if c >= 20 else ""
            self._rect(f"Q[{i}]", left - 50, top + i * c, 44, c, text, fill="Q", strength=1 if held else PALE)
            for j in range(self.p.key_tiles):
                n = when.get((i, j))
                style = {"fill": "S", "strength": 1 if n == at else PALE} if n else {}
                text = str(n) if n and c >= 32 else ""
                self._rect(
                    f"tile[{i},{j}]", left + j * c, top + i * c, c, c, text, stroke=4 if n == at else 1.5, **style
                )

    def _table(self, moved: Moved) -> None:
        columns = {"": 90, "loaded": 120, "stored": 120, "total": 120}
        x, y = self.x + 8, self.table
        for head, width in columns.items():
            self.frame.text(f"{self.name} head {head}", x + width / 2, y, head or "bytes", bold=True)
            x += width
        for at, tensor in enumerate(TENSORS[self.name]):
            loaded, stored = moved.loaded.get(tensor, 0), moved.stored.get(tensor, 0)
            self._row(at, tensor, tensor, (loaded, stored, loaded + stored), moved.now)
        sums = (sum(moved.loaded.values()), sum(moved.stored.values()), moved.total)
        self._row(len(TENSORS[self.name]), "sum", "sum", sums, set())

    def _row(self, at: int, tensor: str, label: str, values: tuple[int, int, int], now: set[str]) -> None:
        y, x = self.table + 16 + at * 38, self.x + 8
        role = tensor if tensor in ("Q", "K", "V", "O") else "" if tensor == "sum" else "softmax"
        strength = 1 if any(n.endswith(f" {tensor}") for n in now) else PALE
        self._rect(f"label {tensor}", x, y, 90, 38, label, fill=role, strength=strength, bold=True)
        for column, (kind, value) in enumerate(zip(("load", "store", "total"), values, strict=True)):
            moving = f"{kind} {tensor}" in now
            arrow = {"load": "→ ", "store": "← "}[kind] if moving else ""
            style = {"fill": "SRAM" if kind == "load" else "HBM", "strength": PALE} if moving else {}
            self._rect(
                f"{kind} {tensor}",
                x + 90 + column * 120,
                y,
                120,
                38,
                arrow + (f"{value:,}" if value < 10**7 else size(value)),
                bold=tensor == "sum",
                **style,
            )

    def _rect(self, name: str, *place, **style) -> None:
        self.frame.rect(f"{self.name} {name}", *place, **style)
