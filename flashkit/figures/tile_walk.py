"""Chapter 3: the walk over the tiles of S, which are visible, masked or skipped, with each row's state beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flashkit.figures.example import example
from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from reference.forward import Event, Problem, Trace, tiled, visit

WIDTH = 960
LEFT, TOP = 108, 108  # of the matrix S
AREA_W, AREA_H = 352, 264
TABLE_X, COLUMNS = 496, {"row": 50, "m": 76, "l": 76, "acc": 122, "O": 122}
ROW = 40
MOST_CELLS = 24  # rows or columns of S with a cell each; beyond it a tile is one shape
MOST_ROWS = 6  # rows of state in the table


@dataclass
class View:
    """What the picture shows at one moment; the frames are made by changing it."""

    i: int = -1  # the query tile on chip, -1: none
    j: int = -1  # the key tile on chip, -1: none
    seen: dict[tuple[int, int], str] = field(default_factory=dict)  # tile -> "now", "done", "skipped"
    scores: Event | None = None  # the tile whose numbers are shown
    masked: bool = False  # whether the mask has been applied to it
    state: Event | None = None  # the event whose m, l, acc are shown; None with i >= 0: the empty state
    done: set[int] = field(default_factory=set)  # query tiles whose O is written


def tile_walk(problem: Problem | None = None) -> Figure:
    """The tile walk of FlashAttention-2's loop order over one head, drawn from the oracle's trace.

    ``problem`` is a :class:`reference.forward.Problem`, by default the course's 5 tokens in tiles of 4, causal.
    """
    problem = example() if problem is None else problem
    trace = Trace()
    O, lse = tiled(problem, trace=trace)
    events = {(e.i, e.j): e for e in trace.events}
    kind = "causal" if problem.causal else "full"
    scene = Scene(
        f"The tile walk over S, {len(problem.Q)} queries and {len(problem.K)} keys, {kind}",
        f"The score matrix of {len(problem.Q)} queries and {len(problem.K)} keys is walked tile by tile "
        f"({problem.block_q} by {problem.block_k}); beside it the running maximum m, sum l and output of each row.",
        WIDTH,
        0,
    )
    walk = _Walk(problem, scene, O)
    walk.show(View(), "S is never stored: it is computed tile by tile. Everything starts in HBM.", "start")
    view = View()
    for i in range(problem.query_tiles):
        view = walk.query_tile(view, i, [events[i, j] for j in visit(problem, i)])
    return Figure(scene)


class _Walk:
    """The frames of one walk: what happens at a step is said here, how it looks is drawn by _Picture."""

    def __init__(self, problem: Problem, scene: Scene, O: np.ndarray):
        self.problem, self.scene = problem, scene
        self.picture = _Picture(problem, O)
        scene.height = self.picture.height

    def show(self, view: View, caption: str, tick: str = "") -> None:
        self.picture.draw(self.scene.frame(caption, tick), view)

    def query_tile(self, view: View, i: int, events: list[Event]) -> View:
        """All frames of query tile ``i``; returns the view after it."""
        p = self.problem
        rows = p.rows(i)
        view = View(i=i, seen=dict(view.seen), done=view.done)
        self.show(view, f"Load Q tile {i} ({_span('row', rows)}); m = −∞, l = 0, acc = 0 on chip.", f"Q{i}")
        for event in events:
            view = self._key_tile(view, event)
        skipped = [j for j in range(p.key_tiles) if j not in {e.j for e in events}]
        if skipped:
            seen = view.seen | {(i, j): "skipped" for j in skipped}
            view = View(i=i, seen=seen, state=view.state, done=view.done)
            what = " and ".join(f"({i}, {j})" for j in skipped) if len(skipped) < 4 else f"from ({i}, {skipped[0]})"
            self.show(view, f"Tile {what}: past the diagonal for every row, so neither loaded nor computed.", "skip")
        view = View(seen=view.seen, state=view.state, done=view.done | {i})
        words = "Divide once, O = acc / l, and write O and lse = m + ln l"
        self.show(view, f"{words} of {_span('row', rows)} to HBM; S was never written.", f"O{i}")
        return view

    def _key_tile(self, view: View, event: Event) -> View:
        i, j = event.i, event.j
        before = View(i, j, view.seen | {(i, j): "now"}, event, False, view.state, view.done)
        keys = event.keys[event.keys < len(self.problem.K)]
        self.show(before, f"Load K and V tile {j} ({_span('key', keys)}) and compute S = scale · Q Kᵀ.", f"S{i}{j}")
        hidden = event.visible.size - int(event.visible.sum())
        if hidden:
            masked = View(i, j, before.seen, event, True, view.state, view.done)
            says = f"Mask before the maximum: {hidden} of {event.visible.size} scores become −∞"
            self.show(
                masked, says + (", among them the columns past the last key." if len(keys) < len(event.keys) else ".")
            )
        after = View(i, j, before.seen, event, True, event, view.done)
        grown = _grown(view.state, event)
        self.show(after, f"Update m, l and acc; {grown}; then S is thrown away.")
        return View(i, -1, after.seen | {(i, j): "done"}, None, False, event, view.done)


def _grown(old: Event | None, new: Event) -> str:
    if old is None:
        return "the first tile sets m"
    rows = [int(r) for r, a, b in zip(new.rows, old.m, new.m, strict=True) if b > a]
    if not rows:
        return "no maximum grew, so alpha = 1"
    return f"m grew in {_span('row', rows)}, whose old l and acc shrink by alpha = exp(m_old − m)"


def _span(word: str, numbers) -> str:
    """ "row 4", "rows 0 to 3", "rows 1, 3"."""
    numbers = [int(n) for n in numbers]
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{word}s {numbers[0]} to {numbers[-1]}"
    return f"{word}s {', '.join(map(str, numbers))}"


class _Picture:
    """Where things are: S with Q at its left and K, V above it; the table of states; the legend."""

    def __init__(self, problem: Problem, O: np.ndarray):
        self.p, self.O = problem, O
        self.columns = problem.key_tiles * problem.block_k
        self.cell = min(44, AREA_W / self.columns, AREA_H / len(problem.Q))
        self.cells = max(self.columns, len(problem.Q)) <= MOST_CELLS
        self.numbers = self.cell >= 44
        rows = len(self._rows_shown(View()))
        self.height = TOP + max(len(problem.Q) * self.cell, rows * ROW) + 70

    def draw(self, frame: Frame, view: View) -> None:
        self._operands(frame, view)
        for i in range(self.p.query_tiles):
            for j in range(self.p.key_tiles):
                self._tile(frame, view, i, j)
        self._table(frame, view)
        self._legend(frame)

    def _operands(self, frame: Frame, view: View) -> None:
        c, p = self.cell, self.p
        for y, role in ((TOP - 92, "V"), (TOP - 48, "K")):
            frame.text(f"{role} label", LEFT - 14, y + 20, role, bold=True, align="end")
            for j in range(p.key_tiles):
                n = min(p.block_k, len(p.K) - j * p.block_k)
                strength = 1 if j == view.j else PALE
                text = f"{role} tile {j}" if n * c > 90 else f"{role}{j}" if n * c > 34 else ""
                frame.rect(f"{role}[{j}]", LEFT + j * p.block_k * c, y, n * c, 40, text, fill=role, strength=strength)
        for i in range(p.query_tiles):
            n = len(p.rows(i))
            strength = 1 if i == view.i else PALE
            text = f"Q{i}" if n * c > 24 else ""
            frame.rect(f"Q[{i}]", LEFT - 48, TOP + i * p.block_q * c, 40, n * c, text, fill="Q", strength=strength)

    def _tile(self, frame: Frame, view: View, i: int, j: int) -> None:
        c, p = self.cell, self.p
        status = view.seen.get((i, j), "")
        rows, first = p.rows(i), j * p.block_k
        x, y = LEFT + first * c, TOP + rows[0] * c
        fill = {"now": ("S", 1), "done": ("S", PALE)}.get(status, ("", 1))
        if self.cells:
            for row in rows:
                for key in range(first, first + p.block_k):
                    self._cell(frame, view, status, fill, int(row), key)
            fill, hatch = ("", 1), ""
        else:
            seen = p.visible[rows][:, first : first + p.block_k]
            hatch = "cross" if status == "skipped" else "" if seen.all() else "diagonal"
        frame.rect(
            f"tile[{i},{j}]", x, y, p.block_k * c, len(rows) * c, fill=fill[0], strength=fill[1], hatch=hatch,
            stroke=4 if status == "now" else 2.5,
        )  # fmt: skip

    def _cell(self, frame: Frame, view: View, status: str, fill: tuple[str, float], row: int, key: int) -> None:
        c, p, event = self.cell, self.p, view.scores
        outside = key >= len(p.K)
        hidden = outside or not p.visible[row, key]
        text, hatch = "", "dots" if outside else "cross" if status == "skipped" else "diagonal" if hidden else ""
        if self.numbers and event is not None and status == "now":
            text, hatch = self._score(event, row, key, view.masked), hatch if view.masked and hidden else ""
        if hidden and text:
            hatch = ""  # −∞ says it
        if hidden and (view.masked or status != "now"):
            fill = ("", 1)
        frame.rect(
            f"S[{row},{key}]", LEFT + key * c, TOP + row * c, c, c, text, fill=fill[0], strength=fill[1], hatch=hatch,
            size=17, stroke=0.8, dashed=outside,
        )  # fmt: skip

    def _score(self, event: Event, row: int, key: int, masked: bool) -> str:
        at, column = row - int(event.rows[0]), key - int(event.keys[0])
        if masked:
            return number(event.S[at, column], 1)
        if key >= len(self.p.K):
            return number(0, 1)  # the tail of K is padded with zeros, so its scores are 0 until they are masked
        return number(self.p.scale * (self.p.Q[row] @ self.p.K[key]), 1)

    def _table(self, frame: Frame, view: View) -> None:
        x = TABLE_X
        heads = {"row": "row", "m": "m", "l": "l", "acc": "acc", "O": "O"}
        shown = self._rows_shown(view)
        wide = sum(w for name, w in COLUMNS.items() if name != "O")
        frame.rect("chip", x, 16, wide - 4, 44, "on chip", fill="SRAM", strength=PALE, bold=True)
        frame.rect("memory", x + wide + 4, 16, COLUMNS["O"] - 4, 44, "HBM", fill="HBM", bold=True)
        for name, width in COLUMNS.items():
            frame.text(f"head {name}", x + width / 2, 84, heads[name], bold=True)
            for at, row in enumerate(shown):
                self._entry(frame, view, name, row, x, TOP + at * ROW, width)
            x += width

    def _rows_shown(self, view: View) -> list[int]:
        if len(self.p.Q) <= MOST_ROWS:
            return list(range(len(self.p.Q)))
        i = view.i if view.i >= 0 else max(view.done, default=0)
        return [int(row) for row in self.p.rows(i)[:MOST_ROWS]]

    def _entry(self, frame: Frame, view: View, name: str, row: int, x: float, y: float, width: float) -> None:
        i = row // self.p.block_q
        name_in_frame = f"{name}[{row}]"
        if name == "row":
            frame.text(name_in_frame, x + width / 2, y + ROW / 2, str(row))
        elif name == "O":
            text = _vector(self.O[row]) if i in view.done else ""
            frame.rect(name_in_frame, x + 4, y, width - 4, ROW, text, fill="O" if text else "", strength=PALE, size=17)
        else:
            text = self._state(view, name, row) if i == view.i else ""
            frame.rect(name_in_frame, x, y, width, ROW, text, fill="SRAM" if text else "", strength=PALE, size=17)

    def _state(self, view: View, name: str, row: int) -> str:
        empty = {"m": "−∞", "l": "0", "acc": "0"}
        if view.state is None:
            return empty[name]
        at = row - int(view.state.rows[0])
        value = getattr(view.state, name)[at]
        return _vector(value) if name == "acc" else number(value)

    def _legend(self, frame: Frame) -> None:
        entries = [
            ("computed now", {"fill": "S"}),
            ("done, thrown away", {"fill": "S", "strength": PALE}),
            ("masked", {"hatch": "diagonal"}),
            ("past the last key", {"hatch": "dots", "dashed": True}),
            ("tile skipped", {"hatch": "cross"}),
        ]
        x, y = 16, self.height - 40
        for text, style in entries:
            frame.rect(f"legend {text}", x, y, 28, 28, **style)
            frame.text(f"legend text {text}", x + 36, y + 14, text, align="start", size=17)
            x += 60 + 10.2 * len(text)


def _vector(values: np.ndarray) -> str:
    """Two numbers, or the first of more."""
    return ", ".join(number(v) for v in values) if len(values) <= 2 else f"{number(values[0])} …"
