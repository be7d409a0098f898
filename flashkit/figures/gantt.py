"""Chapter 7: the Gantt chart of any barrier program: units at work, roles that wait, barriers and their phases."""

from __future__ import annotations

import math

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from flashkit.figures.wire import Control
from reference.pipeline import UNITS, Run, Span, Times, simulate
from reference.pipeline_programs import attention, ring

WIDTH, LEFT, RIGHT, LANE = 960, 150, 12, 34
FRAMES, LETTER = 48, 10.5  # frames at most; units of width a character of size 17 takes
ROLES = {"K": "K", "V": "V", "S": "S", "O": "O"}
PROGRAMS = ("1 stage", "2 stages", "3 stages", "attention, ping-pong", "attention, overlapped")


def gantt(run: Run | None = None) -> Figure:
    """The chart of a simulated program, time step by time step; a program with a mistake ends where it shows.

    Without ``run``: the chapter's examples, chosen by a control.
    """
    if run is not None:
        return Figure.of({(): _scene(run)})
    small = Times(copy=2, matmul=3, exp=3, update=1)
    runs = [simulate(*ring(4, stages)) for stages in (1, 2, 3)]
    runs += [simulate(*attention([3, 3], 2, turns=True), small), simulate(*attention([4], 2, overlap=True), small)]
    return Figure.of({(n,): _scene(run) for n, run in enumerate(runs)}, Control("program", PROGRAMS, chosen=1))


def _scene(run: Run) -> Scene:
    lanes = [unit for unit in UNITS.values() if run.busy(unit)] + list(run.program.roles)
    barriers = [name for name in run.program.barriers if any(flip.barrier == name for flip in run.flips)]
    height = 34 + LANE * len(lanes) + 26 * len(barriers) + 30
    scene = Scene(
        "Gantt chart of a barrier program",
        "One lane a unit with the blocks it works on, one a role with what it waits for, one a barrier with its "
        "phases; time runs to the right, and a prime marks the work of consumer 1.",
        WIDTH,
        height,
    )
    end = max(run.makespan, run.diagnosis.time if run.diagnosis else 0) or 1
    for at, time in enumerate(_moments(run, end)):
        frame = scene.frame(_caption(run, time, end), number(time, 0) if at % 4 == 0 or time == end else "")
        scale = (WIDTH - LEFT - RIGHT) / end
        _axis(frame, lanes, barriers, end, scale)
        _bars(frame, run, lanes, time, scale)
        _phases(frame, run, barriers, time, scale, 34 + LANE * len(lanes))
        x = LEFT + time * scale
        frame.line("now", x, 30, x, height - 30, stroke=2)
    return scene


def _moments(run: Run, end: float) -> list[float]:
    """The times at which something begins or ends, thinned to FRAMES."""
    times = sorted({end} | {t for span in run.spans for t in (span.start, span.end) if 0 < t <= end})
    return times if len(times) <= FRAMES else [*times[: -1 : -(-len(times) // FRAMES)], end]


def _axis(frame: Frame, lanes: list[str], barriers: list[str], end: float, scale: float) -> None:
    for tick in _ticks(end):
        last = tick == end
        frame.text(f"time {tick:g}", LEFT + tick * scale, 14, f"{tick:g}", align="end" if last else "start", size=17)
    for n, lane in enumerate(lanes):
        told = f"{lane} ′" if lane.endswith("1") else lane
        frame.text(f"lane {lane}", 8, 34 + n * LANE + LANE / 2, told, align="start", bold=True, size=17)
    for n, name in enumerate(barriers):
        frame.text(f"barrier {name}", 8, 34 + LANE * len(lanes) + n * 26 + 13, name, align="start", size=17)


def _ticks(end: float) -> list[float]:
    """Round numbers, about four, and the end where it does not meet the last of them."""
    power = 10 ** math.floor(math.log10(end))
    step = next(unit * power for unit in (0.25, 0.5, 1, 2.5) if end / (unit * power) <= 5)
    inside = [n * step for n in range(5) if n * step < end * 0.92]
    return [*inside, end]


def _bars(frame: Frame, run: Run, lanes: list[str], time: float, scale: float) -> None:
    for n, span in enumerate(run.spans):
        if span.start >= time or span.lane not in lanes:
            continue
        width = (min(span.end, time) - span.start) * scale
        place = (LEFT + span.start * scale, 36 + lanes.index(span.lane) * LANE, width, LANE - 5)
        prime = "′" * (span.lane != span.role and span.role.endswith("1"))
        short = span.what[:1] if span.verb == "copy" else "exp" if span.verb == "exp" else ""
        text = next((told for told in (span.what + prime, short + prime) if len(told) * LETTER < width - 4), "")
        frame.rect(f"span {n}", *place, text, size=17, **_style(span, span.end <= time))


def _style(span: Span, done: bool) -> dict:
    if span.lane == span.role:  # waiting
        return {"dashed": True, "stroke": 1}
    if span.verb in ("exp", "update"):
        return {"fill": "softmax", "strength": 1 if span.verb == "exp" else PALE}
    name = span.tile.rstrip("0123456789") if span.verb == "copy" else span.what.rstrip("0123456789")
    return {"fill": ROLES.get(name, "tensor core"), "stroke": 1.5 if done else 3}


def _phases(frame: Frame, run: Run, barriers: list[str], time: float, scale: float, top: float) -> None:
    for n, name in enumerate(barriers):
        flips = [flip.time for flip in run.flips if flip.barrier == name and flip.time <= time]
        edges = [0.0, *flips, time]
        for phase, (start, end) in enumerate(zip(edges, edges[1:], strict=False)):
            width, text = (end - start) * scale, str(phase)
            place = (LEFT + start * scale, top + n * 26 + 2, width, 22)
            style = {"fill": "SRAM", "strength": PALE} if phase % 2 else {}
            shown = text if len(text) * LETTER < width - 2 else ""
            frame.rect(f"phase {name} {phase}", *place, shown, size=17, stroke=1, **style)


def _caption(run: Run, time: float, end: float) -> str:
    if time == end:
        if run.diagnosis:
            return _short(f"{run.diagnosis.kind[0].upper()}{run.diagnosis.kind[1:]}: {run.diagnosis.sentence}")
        share = run.busy("tensor core") / end
        return f"Done at {end:g}: the tensor core worked {share:.0%} of the time. Barrier lanes show their phases."
    begun = [f"{s.lane} begins {s.what}" for s in run.spans if s.start == time and s.lane != s.role]
    waits = [
        f"{s.role} waits for {s.what}" for s in run.spans if s.start == time and s.lane == s.role and s.verb != "drain"
    ]
    told = "; ".join([*begun, *waits][:4]) or "a unit falls idle"
    return _short(f"Time {time:g}: {told}.")


def _short(text: str) -> str:
    return text if len(text) < 235 else text[:230].rsplit(" ", 1)[0] + " ... ."
