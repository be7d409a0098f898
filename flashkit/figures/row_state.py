"""Chapter 3: the numbers of one query row through its key tiles: scores, maximum, alpha, weights, sums, output."""

from __future__ import annotations

import numpy as np

from flashkit.figures.example import example
from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from reference.forward import Event, Problem, Trace, tiled
from reference.online_softmax import shrink

LEFT, LABEL, ROW, GAP = 16, 180, 44, 16
QUANTITIES = {  # name: (colour, label)
    "keys": ("K", "keys"),
    "S": ("S", "scores S"),
    "m": ("softmax", "maximum m"),
    "alpha": ("softmax", "alpha"),
    "P": ("S", "weights P"),
    "l": ("SRAM", "sum l"),
    "acc": ("SRAM", "acc"),
}


def row_state(problem: Problem | None = None, row: int = 4) -> Figure:
    """What query ``row`` carries from key tile to key tile, by the oracle's trace in FlashAttention-2's order.

    ``problem`` defaults to the 5 tokens in tiles of 4, causal. Raises ValueError when there is no such row.
    """
    problem = example() if problem is None else problem
    if not 0 <= row < len(problem.Q):
        raise ValueError(f"row must be 0 to {len(problem.Q) - 1}, but is {row}")
    trace = Trace()
    O, lse = tiled(problem, trace=trace)
    events = [e for e in trace.events if row in e.rows]
    width = max(200, (960 - LEFT * 2 - LABEL) // max(1, len(events)) - GAP)
    scene = Scene(
        f"Row {row} through its key tiles",
        f"The scores, maximum, alpha, weights, sum and output of query row {row} "
        f"after each of its {len(events)} key tiles.",
        max(960, LEFT * 2 + LABEL + len(events) * (width + GAP)),
        len(QUANTITIES) * ROW + 96,
    )
    drawing = _Rows(scene, events, row, width)
    drawing.frame("The row starts with m = −∞, l = 0 and acc = 0.", "start", 0, 0)
    for at, event in enumerate(events):
        for known, (says, tick) in enumerate(_steps(event, events[:at], row), start=2):
            drawing.frame(says, tick, at, known if known < 5 else len(QUANTITIES))
    frame = drawing.frame(
        "One division at the end: O = acc / l, and lse = m + ln l for the backward.", "O", len(events), 0
    )
    drawing.result(frame, O[row], lse[row])
    return Figure(scene)


def alpha_of(event: Event, before: list[Event], row: int) -> float:
    """The factor that the arrival of this tile put on the row's old sums; 0 when there were none."""
    at = row - int(event.rows[0])
    m_old = before[-1].m[at] if before else np.float64(-np.inf)
    return float(shrink(np.float64(m_old), event.m[at]))


def _steps(event: Event, before: list[Event], row: int) -> list[tuple[str, str]]:
    at = row - int(event.rows[0])
    hidden = int((~event.visible[at]).sum())
    masked = f", {hidden} of {len(event.keys)} masked to −∞" if hidden else ""
    alpha = alpha_of(event, before, row)
    if not before:
        reason = "nothing was there before, so alpha is 0"
    elif alpha == 1:
        reason = "the maximum did not grow, so alpha is 1"
    else:
        reason = (
            f"the maximum grew, so alpha = exp({number(before[-1].m[at])} − {number(event.m[at])}) = {number(alpha)}"
        )
    return [
        (f"Tile {event.j}: the row's scores{masked}.", f"S{event.j}"),
        (f"The new maximum is {number(event.m[at])}.", ""),
        (reason[0].upper() + reason[1:] + ".", ""),
        ("P = exp(S − m); l = alpha · l + ΣP and acc = alpha · acc + P V: both old sums shrink by the same alpha.", ""),
    ]


class _Rows:
    """One column a key tile, one line a quantity, filled as the steps become known."""

    def __init__(self, scene: Scene, events: list[Event], row: int, width: float):
        self.scene, self.events, self.row, self.width = scene, events, row, width

    def frame(self, caption: str, tick: str, current: int, known: int) -> Frame:
        """Tiles before ``current`` show everything, tile ``current`` its first ``known`` quantities."""
        frame = self.scene.frame(caption, tick)
        for line, (name, (_, label)) in enumerate(QUANTITIES.items()):
            frame.text(f"label {name}", LEFT, 36 + line * ROW, label, align="start", bold=True)
        for at, event in enumerate(self.events):
            shown = len(QUANTITIES) if at < current else known if at == current else 1
            self._tile(frame, at, event, max(1, shown), at == current)
        return frame

    def _tile(self, frame: Frame, at: int, event: Event, shown: int, now: bool) -> None:
        x = LEFT + LABEL + at * (self.width + GAP)
        for line, (name, (role, _)) in enumerate(QUANTITIES.items()):
            values = self._values(name, at, event)
            wide = self.width / len(values)
            for n, text in enumerate(values):
                known = line < shown
                style = {"fill": role, "strength": 1 if now and line == shown - 1 and line else PALE} if known else {}
                box = (x + n * wide, 14 + line * ROW, wide, ROW - 4)
                frame.rect(f"{name}[{event.j}][{n}]", *box, text if known else "", size=17, **style)

    def _values(self, name: str, at: int, event: Event) -> list[str]:
        row = self.row - int(event.rows[0])
        if name == "keys":
            return [f"k{k}" if k < self._keys else "–" for k in event.keys]
        if name in ("S", "P"):
            digits = 2 if self.width / len(event.keys) >= 60 else 1
            return [number(v, digits) for v in getattr(event, name)[row]]
        if name == "alpha":
            return [number(alpha_of(event, self.events[:at], self.row))]
        value = getattr(event, name)[row]
        return [number(v) for v in np.atleast_1d(value)[:2]]

    @property
    def _keys(self) -> int:
        return max((int(e.keys[e.visible.any(axis=0)].max(initial=-1)) for e in self.events), default=-1) + 1

    def result(self, frame: Frame, O: np.ndarray, lse: float) -> None:
        y = 22 + len(QUANTITIES) * ROW
        text = f"O = ({', '.join(number(v, 4) for v in O[:4])})"
        frame.rect("O", LEFT + LABEL, y, 320, 48, text, fill="O", bold=True)
        frame.rect("lse", LEFT + LABEL + 336, y, 240, 48, f"lse = {number(lse, 4)}", fill="HBM", bold=True)
