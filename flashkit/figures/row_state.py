"""Chapter 3: the numbers of one query row through its key tiles: scores, maximum, alpha, weights, sums, output."""

from __future__ import annotations

import numpy as np

from flashkit.figures.columns import LABEL, LEFT, Columns, Line, block_width
from flashkit.figures.example import example
from flashkit.figures.figure import Figure
from flashkit.figures.scene import Frame, Scene, number
from reference.forward import Event, Problem, Trace, tiled
from reference.online_softmax import shrink

LINES = [
    Line("keys", "K", "keys"),
    Line("S", "S", "scores S"),
    Line("m", "softmax", "maximum m"),
    Line("alpha", "softmax", "alpha"),
    Line("P", "S", "weights P"),
    Line("l", "SRAM", "sum l"),
    Line("acc", "SRAM", "acc"),
]


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
    scene = Scene(
        f"Row {row} through its key tiles",
        f"The scores, maximum, alpha, weights, sum and output of query row {row} "
        f"after each of its {len(events)} key tiles.",
        0,
        0,
    )
    columns = Columns(scene, LINES, [_texts(problem, events[: at + 1], row) for at in range(len(events))])
    scene.height = columns.bottom + 70
    columns.frame("The row starts with m = −∞, l = 0 and acc = 0.", "start", 0, 1)
    for at, event in enumerate(events):
        for known, (says, tick) in zip((2, 3, 4, 7), _steps(event, events[:at], row), strict=True):
            columns.frame(says, tick, at, known)
    says = "One division at the end: O = acc / l, and lse = m + ln l for the backward."
    result(columns.frame(says, "O", len(events), 0), columns.bottom, O[row], lse[row])
    return Figure(scene)


def alpha_of(event: Event, before: list[Event], row: int) -> float:
    """The factor that the arrival of this tile put on the row's old sums; 0 when there were none."""
    at = row - int(event.rows[0])
    m_old = before[-1].m[at] if before else np.float64(-np.inf)
    return float(shrink(np.float64(m_old), event.m[at]))


def result(frame: Frame, y: float, O: np.ndarray, lse: float) -> None:
    """The row's output and lse, under the table."""
    text = f"O = ({', '.join(number(v, 4) for v in O[:2])}{', …' if len(O) > 2 else ''})"
    frame.rect("O", LEFT + LABEL, y + 8, 320, 48, text, fill="O", bold=True)
    frame.rect("lse", LEFT + LABEL + 336, y + 8, 240, 48, f"lse = {number(lse, 4)}", fill="HBM", bold=True)


def _texts(problem: Problem, events: list[Event], row: int) -> dict[str, list[str]]:
    event, at = events[-1], row - int(events[-1].rows[0])
    digits = 2 if block_width(problem.key_tiles) / problem.block_k >= 60 else 1
    return {
        "keys": [f"k{key}" if key < len(problem.K) else "–" for key in event.keys],
        "S": [number(v, digits) for v in event.S[at]],
        "m": [number(event.m[at])],
        "alpha": [number(alpha_of(event, events[:-1], row))],
        "P": [number(v, digits) for v in event.P[at]],
        "l": [number(event.l[at])],
        "acc": [number(v) for v in event.acc[at][:2]],
    }


def _steps(event: Event, before: list[Event], row: int) -> list[tuple[str, str]]:
    at = row - int(event.rows[0])
    hidden = int((~event.visible[at]).sum())
    masked = f", {hidden} of {len(event.keys)} masked to −∞" if hidden else ""
    alpha = alpha_of(event, before, row)
    if not before:
        reason = "Nothing was there before, so alpha is 0."
    elif alpha == 1:
        reason = "The maximum did not grow, so alpha is 1."
    else:
        old, new = number(before[-1].m[at]), number(event.m[at])
        reason = f"The maximum grew, so alpha = exp({old} − {new}) = {number(alpha)}."
    return [
        (f"Tile {event.j}: the row's scores{masked}.", f"S{event.j}"),
        (f"The new maximum is {number(event.m[at])}.", ""),
        (reason, ""),
        ("P = exp(S − m); l = alpha · l + ΣP and acc = alpha · acc + P V: both old sums shrink by the same alpha.", ""),
    ]
