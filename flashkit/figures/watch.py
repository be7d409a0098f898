"""The tile walk of a learner's own kernel, drawn from the meter's record: who reads which rows, when, how often."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flashkit.figures.figure import Figure
from flashkit.figures.ledger import size
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene

WIDTH, LEFT, TOP, SIDE = 960, 130, 130, 300
TABLE_X, ROW = 470, 36
COLUMNS = (("tensor", 90), ("read", 116), ("times each", 116), ("written", 116))
MOST = 400  # accesses with a frame each
ROLE = {"q": "Q", "k": "K", "v": "V", "o": "O", "s": "S", "p": "S", "dq": "Q", "dk": "K", "dv": "V", "do": "O"}
VERB = {"load": "reads", "store": "writes", "atomic": "adds atomically to"}


@dataclass
class View:
    """What has happened so far: bytes per tensor, each program's rows on chip, tiles of S reached."""

    loaded: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    held: dict[tuple, dict[str, tuple[int, int]]] = field(default_factory=dict)
    tiles: dict[tuple[int, int, int, int], int] = field(default_factory=dict)


def watch(function: Callable, *args, **kwargs) -> Figure:
    """Run ``function(*args, **kwargs)``, which launches Triton kernels, in the interpreter and draw its accesses.

    Tensors go by the function's parameter names, those of a ``kernel[grid]`` by the kernel's; with `q` and `k` among
    them, the tiles of S that the kernel walks are drawn too. "Times each" is the reuse score: bytes read over different
    bytes read. Raises what the function raises, MeterStop for an access outside every argument, TypeError for a kernel
    without a grid, and ValueError when no kernel touched memory.
    """
    from flashkit.instruments.meter import Meter

    if hasattr(function, "arg_names"):
        name = function.__name__
        raise TypeError(f"{name} is a kernel: hand over the function that launches it, or {name}[grid].")
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    tensors = {name: value for name, value in given.items() if hasattr(value, "data_ptr")}
    with Meter(names=tensors) as meter:
        function(*args, **kwargs)
    record = meter.finish()
    if not record.events:
        raise ValueError("no kernel touched memory, so there is nothing to draw: does the function launch a kernel?")
    return Figure(watched(record, {name: _rows(tensor) for name, tensor in tensors.items()}))


def watched(record, rows: Mapping[str, int]) -> Scene:
    """The scene of a meter's record. ``rows``: how many rows the named tensors have; others' are taken as touched."""
    rows = _all_rows(record.events, rows)
    names = [launch.name for launch in record.launches]
    programs = len({(e.launch, e.program) for e in record.events})
    scene = Scene(
        f"What {' and '.join(dict.fromkeys(names))} touched",
        f"{len(record.events)} memory accesses of {programs} programs, in order: rows of each tensor, bytes so far, "
        "and the tiles of S that follow from them.",
        WIDTH,
        TOP + max(SIDE, (len(rows) + 2) * ROW) + 40,
    )
    view, drawing = View(), _Drawing(record, rows)
    drawing.draw(scene.frame(f"{programs} programs are about to run; nothing has moved.", "start"), view, None)
    for at, event in enumerate(record.events):
        _account(view, event)
        if at < MOST:
            first = at == 0 or event.program != record.events[at - 1].program
            tick = _program(event.program) if first else ""
            drawing.draw(scene.frame(_says(record, event), tick), view, event)
    drawing.draw(scene.frame(_summary(record), "end"), view, None, final=True)
    return scene


def _rows(tensor) -> int:
    return tensor.shape[2] if tensor.dim() > 2 else tensor.shape[0] if tensor.dim() else 1


def _all_rows(events: Sequence, rows: Mapping[str, int]) -> dict[str, int]:
    touched: dict[str, int] = {}
    for event in events:
        touched[event.tensor] = max(touched.get(event.tensor, 1), event.highest_row + 1, event.lowest_row + 1)
    return {name: rows.get(name, most) for name, most in touched.items()}


def _account(view: View, event) -> None:
    sums = view.loaded if event.access == "load" else view.stored
    sums[event.tensor] = sums.get(event.tensor, 0) + event.bytes
    span = (min(event.lowest_row, event.highest_row), max(event.lowest_row, event.highest_row))
    held = view.held.setdefault((event.launch, event.program), {})
    name = _plain(event.tensor)
    if event.access == "load":
        held[name] = span
    if event.access == "load" and name in ("q", "k") and {"q", "k"} <= held.keys():
        tile = held["q"] + held["k"]
        view.tiles[tile] = view.tiles.get(tile, 0) + 1


def _plain(tensor: str) -> str:
    """A tensor without a name of its own goes by the kernel's pointer to it."""
    return tensor.removesuffix("_ptr")


def _program(program: tuple) -> str:
    used = [str(axis) for axis in program]
    while len(used) > 1 and used[-1] == "0":
        used.pop()
    return ",".join(used)


def _says(record, event) -> str:
    span = f"rows {event.lowest_row} to {event.highest_row}" if event.lowest_row != event.highest_row else ""
    where = f"{span or f'row {event.lowest_row}'} of {_plain(event.tensor)}"
    text = f"Program ({_program(event.program)}) {VERB[event.access]} {where}, {size(event.bytes)}"
    line = _source(record.launches[event.launch].kernel, event.lineno)
    return f"{text}: line {event.lineno}, {line}" if line else f"{text}."


def _source(kernel, lineno: int | None) -> str:
    function = getattr(kernel, "fn", kernel)
    code = getattr(function, "__code__", None)
    line = linecache.getline(code.co_filename, lineno).strip() if code and lineno else ""
    return line if len(line) <= 70 else line[:67] + "…"


def _summary(record) -> str:
    scores = [
        f"{name} {traffic.loaded / traffic.distinct_loaded:.3g} times"
        for name, traffic in record.traffic.items()
        if traffic.distinct_loaded
    ]
    score = (
        f"Reuse score, how often each byte was read on average: {', '.join(scores)}." if scores else "Nothing was read."
    )
    total = len(record.events)
    return score if total <= MOST else f"{score} Only the first {MOST} of {total:,} accesses have a step of their own."


class _Drawing:
    """Strips of rows around S at the left, bytes per tensor at the right."""

    def __init__(self, record, rows: Mapping[str, int]):
        self.record, self.rows = record, rows
        written = [_plain(event.tensor) for event in record.events if event.access != "load"]
        outputs = [name for name in written if name not in ("q", "k", "v")]
        self.output = "o" if "o" in outputs or not outputs else outputs[0]

    def draw(self, frame: Frame, view: View, event, final: bool = False) -> None:
        held = view.held.get((event.launch, event.program), {}) if event else {}
        for name, y in (("v", TOP - 110), ("k", TOP - 56)):
            self._strip(frame, name, LEFT, y, SIDE, 44, event, held)
        for name, x in (("q", LEFT - 56), (self.output, LEFT - 112)):
            self._strip(frame, name, x, TOP, 44, SIDE, event, held)
        if {"q", "k"} <= set(map(_plain, self.rows)):
            self._tiles(frame, view, held)
        self._table(frame, view, event, final)

    def _strip(self, frame: Frame, name: str, x: float, y: float, w: float, h: float, event, held) -> None:
        tensor = self._tensor(name)
        if tensor not in self.rows:
            return
        across, rows = w > h, self.rows[tensor]
        moving = event is not None and event.tensor == tensor
        span = sorted((event.lowest_row, event.highest_row)) if moving else held.get(name)
        role, label = ROLE.get(name, "O"), name.upper() if name in ROLE else name
        frame.rect(f"strip {name}", x, y, w, h, "" if span else label, fill=role, strength=PALE, bold=True)
        if not span:
            return
        start, length = span[0] / rows, (span[1] - span[0] + 1) / rows
        place = (x + start * w, y, length * w, h) if across else (x, y + start * h, w, length * h)
        text = label if min(place[2:]) >= 24 else ""
        frame.rect(f"rows {name}", *place, text, fill=role, bold=True, stroke=4 if moving else 1.5)

    def _tensor(self, name: str) -> str:
        return name if name in self.rows else f"{name}_ptr"

    def _tiles(self, frame: Frame, view: View, held) -> None:
        frame.rect("S", LEFT, TOP, SIDE, SIDE)
        queries, keys = self.rows[self._tensor("q")], self.rows[self._tensor("k")]
        now = held["q"] + held["k"] if {"q", "k"} <= held.keys() else None
        for at, (tile, visits) in enumerate(view.tiles.items()):
            q0, q1, k0, k1 = tile
            x, y = LEFT + k0 / keys * SIDE, TOP + q0 / queries * SIDE
            w, h = (k1 - k0 + 1) / keys * SIDE, (q1 - q0 + 1) / queries * SIDE
            text = f"{visits}×" if w > 36 and h > 22 else ""
            style = {"strength": 1 if tile == now else PALE, "stroke": 4 if tile == now else 1.5}
            frame.rect(f"tile {at}", x, y, w, h, text, fill="S", size=17, **style)

    def _table(self, frame: Frame, view: View, event, final: bool) -> None:
        x = TABLE_X
        for head, width in COLUMNS:
            frame.text(f"head {head}", x + width / 2, TOP - 30, head, bold=True)
            x += width
        for at, tensor in enumerate(self.rows):
            self._row(frame, at, tensor, view, event, final)
        total = sum(view.loaded.values()) + sum(view.stored.values())
        y = TOP - 10 + len(self.rows) * ROW
        frame.text("total", TABLE_X, y + ROW, f"moved so far: {size(total)}", align="start", bold=True)

    def _row(self, frame: Frame, at: int, tensor: str, view: View, event, final: bool) -> None:
        traffic, x, y = self.record.traffic.get(tensor), TABLE_X, TOP - 10 + at * ROW
        times = (
            f"{traffic.loaded / traffic.distinct_loaded:.3g}" if final and traffic and traffic.distinct_loaded else ""
        )
        loaded, stored = (size(sums[tensor]) if tensor in sums else "–" for sums in (view.loaded, view.stored))
        moving = event is not None and event.tensor == tensor
        label = _plain(tensor)
        role = ROLE.get(label, "")
        for (head, width), text in zip(COLUMNS, (label, loaded, times, stored), strict=True):
            style = {"fill": role, "strength": 1 if moving else PALE} if head == "tensor" and role else {}
            frame.rect(f"{head} {tensor}", x, y, width, ROW, text, size=17, bold=moving, **style)
            x += width
