"""Chapter 6: which multiprocessor works on which query tile, and when; or, for many, how many of them work."""

from __future__ import annotations

from collections.abc import Mapping

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference import schedule
from reference.schedule import Timeline
from reference.traffic import Shape

WIDTH, LEFT, RIGHT, TOP, LANE = 960, 96, 940, 20, 44
LANES = 10  # multiprocessors that are drawn one by one
HIGH, BINS, STEPS = 320, 24, 12
FAR = 4


def timelines(shape: Shape, sms: int) -> dict[str, Timeline]:
    """Four ways to launch ``shape`` (its mask is chosen here), with one program a multiprocessor at a time."""
    full, causal = (
        Shape(**{**vars(shape), "causal": mask, "offset": shape.N_k - shape.N_q if mask else 0})
        for mask in (False, True)
    )
    run = {"heads only": schedule.head_tasks(full), "query tiles": schedule.forward_tasks(full)}
    for name in ("head by head", "longest first"):
        run[f"causal, {name}"] = schedule.ORDERS[name](schedule.forward_tasks(causal))
    return {name: schedule.simulate(tasks, sms) for name, tasks in run.items()}


def sm_timeline(
    B: int = 1, H: int = 3, N: int = 1024, block_q: int = 128, block_k: int = 128, sms: int = 5,
    runs: Mapping[str, Timeline] | None = None,
) -> Figure:  # fmt: skip
    """Multiprocessors over time for B sequences of H heads and N tokens, in tiles of block_q by block_k.

    A unit of time is one score tile. Up to 10 multiprocessors are drawn one by one, more as the number at work.
    ``runs`` are other timelines by name, all on as many places. The control chooses between them.
    """
    runs = runs or timelines(Shape(N, N, 128, 128, block_q, block_k, B=B, H_q=H, H_kv=H), sms)
    ends = [run.makespan for run in runs.values()]
    shared = max(end for end in ends if end <= FAR * min(ends))  # a launch that takes far longer has an axis of its own
    draw = _lanes if next(iter(runs.values())).places <= LANES else _profile
    scenes = {(n,): draw(name, run, max(shared, run.makespan)) for n, (name, run) in enumerate(runs.items())}
    return Figure.of(scenes, Control("launch", tuple(runs), "select", 0))


def _scene(run: Timeline, height: float) -> Scene:
    return Scene(
        f"Tiles on {run.places} multiprocessors",
        f"Time runs to the right, {run.places} multiprocessors are stacked: blocks are query tiles while they are "
        "worked on, empty space is idle time.",
        WIDTH,
        height,
    )


def _said(name: str, run: Timeline, time: float) -> str:
    """The caption at this moment."""
    name = name[0].upper() + name[1:]
    done = sum(span.end <= time + schedule.EPSILON for span in run.spans)
    if time >= run.makespan:
        ends = f"all {len(run.spans)} programs end after {run.makespan:g} units"
        return f"{name}: {ends}; {100 * run.idle:.0f} % of the time is idle."
    if time == 0:
        return f"{name}: {len(run.spans)} programs; {run.running(0)} of {run.places} multiprocessors start with one."
    return (
        f"{name}, after {_number(time)} units: {run.running(time)} of {run.places} multiprocessors work; {done} of "
        f"{len(run.spans)} programs have ended."
    )


def _number(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.3g}"


def _times(run: Timeline) -> list[float]:
    return [run.makespan * step / STEPS for step in range(STEPS + 1)]


def _axis(frame: Frame, last: float, bottom: float, now: float) -> None:
    frame.line("axis", LEFT, bottom, RIGHT, bottom)
    for step in range(5):
        at = last * step / 4
        frame.line(f"tick {step}", _x(at, last), bottom, _x(at, last), bottom + 6)
        frame.text(f"time {step}", min(_x(at, last), RIGHT - 12), bottom + 22, _number(at))
    frame.text("axis title", (LEFT + RIGHT) / 2, bottom + 48, "time, in score tiles of one program", bold=True)
    frame.line("now", _x(now, last), TOP - 8, _x(now, last), bottom, dashed=True, stroke=2)


def _x(time: float, last: float) -> float:
    return LEFT + (RIGHT - LEFT) * time / last


def _lanes(name: str, run: Timeline, last: float) -> Scene:
    bottom = TOP + run.places * LANE
    scene = _scene(run, bottom + 70)
    for time in _times(run):
        frame = scene.frame(_said(name, run, time), _number(time) if time else "start")
        for place in range(run.places):
            frame.text(f"SM {place}", LEFT - 12, TOP + place * LANE + LANE / 2, f"SM {place}", align="end")
            frame.line(f"lane {place}", LEFT, TOP + (place + 1) * LANE, RIGHT, TOP + (place + 1) * LANE, stroke=0.5)
        for span in run.spans:
            if span.start <= time and span.end > span.start:
                _block(frame, span, last, now=span.start <= time < span.end)
        _axis(frame, last, bottom, time)
    return scene


def _block(frame: Frame, span: schedule.Span, last: float, now: bool) -> None:
    """A program: head.tile, or the tile alone where it is short; full colour while it works."""
    x, wide = _x(span.start, last), _x(span.end, last) - _x(span.start, last)
    whole = span.task.tile == schedule.ALL
    texts = (f"head {span.task.head}",) if whole else (f"{span.task.head}.{span.task.tile}", f"{span.task.tile}")
    text = next((t for t in texts if len(t) * 11 <= wide), "")
    fill = {"fill": "Q", "strength": 1 if now else PALE} if text else {}
    frame.rect(
        f"program {span.task.head}.{span.task.tile}",
        x,
        TOP + span.place * LANE + 4,
        wide,
        LANE - 8,
        text,
        size=17,
        **fill,
    )


def _profile(name: str, run: Timeline, last: float) -> Scene:
    """Bars: how many multiprocessors work, on average over a 24th of the longest launch."""
    bottom, width = TOP + HIGH, last / BINS
    scene = _scene(run, bottom + 70)
    for time in _times(run):
        frame = scene.frame(_said(name, run, time), _number(time) if time else "start")
        frame.line("all", LEFT, TOP, RIGHT, TOP, dashed=True)
        frame.text("all label", LEFT - 12, TOP, f"{run.places}", align="end")
        frame.text("none label", LEFT - 12, bottom, "0", align="end")
        for bin in range(BINS):
            start, end = bin * width, (bin + 1) * width
            if start < time:
                _bar(frame, bin, _working(run, start, end), run.places, now=time <= end)
        _axis(frame, last, bottom, time)
    return scene


def _working(run: Timeline, start: float, end: float) -> float:
    """Multiprocessors at work between two moments, on average."""
    return sum(max(0.0, min(s.end, end) - max(s.start, start)) for s in run.spans) / (end - start)


def _bar(frame: Frame, bin: int, working: float, places: int, now: bool) -> None:
    x, wide = LEFT + (RIGHT - LEFT) * bin / BINS, (RIGHT - LEFT) / BINS
    high = HIGH * working / places
    if high < 22:  # too low for a number inside
        frame.rect(f"bar {bin}", x, TOP + HIGH - high, wide, high)
        if working >= 0.5:
            frame.text(f"count {bin}", x + wide / 2, TOP + HIGH - high - 14, f"{working:.0f}", size=17)
        return
    style = {"fill": "Q", "strength": 1 if now else PALE}
    frame.rect(f"bar {bin}", x, TOP + HIGH - high, wide, high, f"{working:.0f}", size=17, **style)
