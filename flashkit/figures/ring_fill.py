"""Chapter 7: a ring of tiles that fills and empties: what each tile holds, and where its two barriers stand."""

from __future__ import annotations

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from flashkit.figures.wire import Control
from reference.pipeline import Run, Span, Times, simulate
from reference.pipeline_programs import ring

WIDTH, HEIGHT, TOP, GAP = 960, 330, 96, 40
STAGES = (1, 2, 3, 4)
PACE = (("products slower: copy 2, product 5", Times(2, 5)), ("copies slower: copy 5, product 2", Times(5, 2)))


def ring_fill(blocks: int = 6) -> Figure:
    """The ring of :func:`reference.pipeline_programs.ring` moment by moment; stages and pace are controls."""
    scenes = {
        (n, p): _scene(simulate(*ring(blocks, stages), times), stages)
        for n, stages in enumerate(STAGES)
        for p, (_, times) in enumerate(PACE)
    }
    return Figure.of(
        scenes, Control("stages", tuple(map(str, STAGES)), "range", 1), Control("pace", tuple(name for name, _ in PACE))
    )


def _scene(run: Run, stages: int) -> Scene:
    scene = Scene(
        "A ring buffer between a producer and a consumer",
        f"{stages} tile{'s' * (stages > 1)}, each empty, filling, full or being read, with the block that it holds and "
        "the phases of its full and empty barriers; below, what producer and consumer wait for.",
        WIDTH,
        HEIGHT,
    )
    times = sorted({t for span in run.spans for t in (span.start, span.end)})
    for time in times:
        frame = scene.frame(_caption(run, time), number(time, 0))
        frame.text("time", 12, 24, f"time {time:g} of {run.makespan:g}", align="start", bold=True)
        for s in range(stages):
            _tile(frame, run, s, stages, time)
        for n, role in enumerate(run.program.roles):
            frame.text(f"role {role}", 12, 262 + n * 34, role, align="start", bold=True)
            frame.text(f"doing {role}", 130, 262 + n * 34, _doing(run, role, time), align="start")
    return scene


def _tile(frame: Frame, run: Run, s: int, stages: int, time: float) -> None:
    wide = min(300, (WIDTH - 24 - GAP * (stages - 1)) / stages)
    x, state, block = 12 + s * (wide + GAP), *_state(run, s, time)
    style = {
        "empty": {},
        "filling": {"fill": "K", "strength": PALE, "hatch": "dots"},
        "full": {"fill": "K"},
        "read": {"fill": "K", "stroke": 4},
    }[state]
    frame.text(f"name K{s}", x, 62, f"K{s}", align="start", bold=True)
    label = {"read": f"K{block}\nbeing read", "filling": f"K{block}\nfilling", "full": f"K{block}\nfull"}.get(
        state, "empty"
    )
    frame.rect(f"tile K{s}", x, TOP - 14, wide, 84, label, **style)
    for n, barrier in enumerate((f"full{s}", f"empty{s}")):
        phase = sum(flip.barrier == barrier and flip.time <= time for flip in run.flips)
        place = (x, TOP + 80 + n * 32, wide, 28)
        frame.rect(
            f"barrier {barrier}",
            *place,
            f"{barrier}: phase {phase}",
            size=17,
            stroke=3 if _flipped(run, barrier, time) else 1,
        )
    if s + 1 < stages:
        frame.arrow(f"next {s}", x + wide + 6, TOP + 28, x + wide + 34, TOP + 28)


def _flipped(run: Run, barrier: str, time: float) -> bool:
    return any(flip.barrier == barrier and flip.time == time for flip in run.flips)


def _state(run: Run, s: int, time: float) -> tuple[str, int]:
    """What a tile is at a time, and the block it holds: the last copy into it, and its reader."""
    mine = [span for span in run.spans if span.tile == f"K{s}" and span.start <= time]
    copies = [span for span in mine if span.verb == "copy"]
    if not copies:
        return "empty", -1
    last = copies[-1]
    reads = [span for span in mine if span.verb == "matmul" and span.block == last.block]
    if time < last.end:
        return "filling", last.block
    if not reads:
        return "full", last.block
    return ("read", last.block) if time < reads[-1].end else ("empty", last.block)


def _doing(run: Run, role: str, time: float) -> str:
    waits = [span for span in run.spans if span.lane == role and span.start <= time < span.end]
    if waits:
        return f"waits for {_what(waits[0])}"
    later = any(span.role == role and span.end > time for span in run.spans)
    return "goes on" if later else "has ended"


def _what(span: Span) -> str:
    return "its product" if span.verb == "drain" else span.what


def _caption(run: Run, time: float) -> str:
    begins = [
        f"{'copy of' if s.verb == 'copy' else 'product of'} K{s.block} begins" for s in _units(run) if s.start == time
    ]
    ends = [f"{'copy of' if s.verb == 'copy' else 'product of'} K{s.block} ends" for s in _units(run) if s.end == time]
    told = ", ".join([*ends, *begins])
    return f"Time {time:g}: {told}." if told else f"Time {time:g}."


def _units(run: Run) -> list[Span]:
    return [span for span in run.spans if span.lane != span.role]
