"""Chapter 2: numbers walking through online softmax, and what each broken rescale does to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flashkit.figures.columns import LABEL, LEFT, Columns, Line
from flashkit.figures.figure import Figure
from flashkit.figures.scene import Scene, number
from flashkit.figures.wire import Control
from reference.forward import STEPS, Problem, Steps, Trace, dense, tiled
from reference.online_softmax import State, shrink

LINES = [
    Line("V", "V", "values V"),
    Line("S", "S", "scores S"),
    Line("m", "softmax", "maximum m"),
    Line("old l", "SRAM", "old l, rescaled"),
    Line("old acc", "SRAM", "old acc, rescaled"),
    Line("P", "S", "weights P"),
    Line("l", "SRAM", "sum l"),
    Line("acc", "SRAM", "acc"),
]


def _row(scores, values, block: int) -> Problem:
    """One query of 1 with keys equal to the scores, so that S is exactly ``scores``."""
    column = np.array([scores, values], float)[:, :, None]
    return Problem(np.ones((1, 1)), column[0], column[1], scale=1.0, block_q=1, block_k=block)


NUMBERS = {
    "scores 1 2 | 3 0": _row([1, 2, 3, 0], [2, 8, 4, 10], 2),
    "scores 0 | ln 3": _row([0, np.log(3)], [10, 2], 1),
}


@dataclass(frozen=True)
class Bug:
    """A toggle: its name, the oracle with one step replaced, and a sentence for the rescale step."""

    name: str
    steps: Steps
    says: str


def _scaled(l: Callable, acc: Callable) -> Steps:
    """The oracle whose old l and acc are multiplied by ``l(alpha)`` and ``acc(alpha)``."""

    def rescale(state: State, m_new: np.ndarray) -> State:
        alpha = shrink(state.m, m_new)
        return State(m_new, l(alpha) * state.l, acc(alpha)[..., None] * state.acc)

    return replace(STEPS, rescale=rescale)


def _same(alpha: np.ndarray) -> np.ndarray:
    return alpha


def _one(alpha: np.ndarray) -> np.ndarray:
    return np.ones_like(alpha)


def _inverse(alpha: np.ndarray) -> np.ndarray:
    return np.divide(1, alpha, out=np.zeros_like(alpha), where=alpha > 0)


def _own_softmax(S: np.ndarray, m_new: np.ndarray) -> np.ndarray:
    P = np.exp(S - S.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


AVERAGED = replace(_scaled(_one, _one), weights=_own_softmax)  # every block's weights sum to 1, so l counts blocks
BUGS = (
    Bug("none", STEPS, "both old sums are multiplied by the same alpha"),
    Bug("acc not rescaled", _scaled(_same, _one), "l is multiplied by alpha, acc is left in the old frame"),
    Bug("l not rescaled", _scaled(_one, _same), "acc is multiplied by alpha, l is left in the old frame"),
    Bug(
        "neither rescaled", _scaled(_one, _one), "both old sums stay in the old frame, as if the maximum had not grown"
    ),
    Bug("alpha inverted", _scaled(_inverse, _inverse), "both old sums grow by 1 / alpha instead of shrinking"),
    Bug("blocks averaged", AVERAGED, "each block's weights already sum to 1, so its mass is lost"),
)


def online_softmax() -> Figure:
    """One row in two blocks through the oracle's steps; controls choose the numbers and a bug."""
    scenes = {(n, b): _scene(problem, bug) for n, problem in enumerate(NUMBERS.values()) for b, bug in enumerate(BUGS)}
    return Figure.of(scenes, Control("numbers", tuple(NUMBERS)), Control("bug", tuple(bug.name for bug in BUGS)))


def walk(problem: Problem, steps: Steps) -> tuple[Trace, list[State], float]:
    """The trace of a one-row problem, the state after each rescale, and O (a number: d_v is 1)."""
    rescaled = []

    def recording(state: State, m_new: np.ndarray) -> State:
        rescaled.append(steps.rescale(state, m_new))
        return rescaled[-1]

    trace = Trace()
    O, _ = tiled(problem, replace(steps, rescale=recording), trace)
    return trace, rescaled, float(O[0, 0])


def _scene(problem: Problem, bug: Bug) -> Scene:
    trace, rescaled, O = walk(problem, bug.steps)
    right = float(dense(problem)[0][0, 0])
    scene = Scene(
        "Online softmax: numbers through the blocks",
        "One row of scores is read in two blocks; each block's maximum, rescaled old sums, weights and new sums fill "
        "in, and the last line compares the output with the right one.",
        0,
        0,
    )
    blocks = [
        {
            "V": [number(v, 0) for v in problem.V[event.keys, 0]],
            "S": [number(v) for v in event.S[0]],
            "m": [number(event.m[0])],
            "old l": [number(state.l[0], 4)],
            "old acc": [number(state.acc[0, 0], 4)],
            "P": [number(v, 4) for v in event.P[0]],
            "l": [number(event.l[0], 4)],
            "acc": [number(event.acc[0, 0], 4)],
        }
        for event, state in zip(trace.events, rescaled, strict=True)
    ]
    columns = Columns(scene, LINES, blocks)
    scene.height = columns.bottom + 70
    columns.frame("Before the first block: m = −∞, l = 0, acc = 0.", "start", 0, 1)
    for at, event in enumerate(trace.events):
        _block(columns, at, event.m[0], trace.events[at - 1].m[0] if at else -np.inf, bug)
    verdict = "right" if abs(O - right) < 1e-12 else f"wrong: {number(right, 7)} is right"
    frame = columns.frame(f"O = acc / l = {number(O, 7)}: {verdict}.", "O", len(blocks), 0)
    frame.rect("O", LEFT + LABEL, columns.bottom + 8, 300, 48, f"O = {number(O, 7)}", fill="O", bold=True)
    frame.text("verdict", LEFT + LABEL + 320, columns.bottom + 32, verdict, align="start", bold=True)
    return scene


def _block(columns: Columns, at: int, m: float, m_old: float, bug: Bug) -> None:
    columns.frame(f"Block {at}: its scores arrive.", f"B{at}", at, 2)
    columns.frame(f"The maximum is now {number(m)}.", "", at, 3)
    old = f"alpha = exp({number(m_old)} − {number(m)}) = {number(np.exp(m_old - m), 4)}: {bug.says}."
    columns.frame(old if at else "There is nothing old yet: alpha is taken as 0.", "", at, 5)
    columns.frame("The block's weights: P = exp(S − m).", "", at, 6)
    columns.frame("The new sums: l = old l + ΣP, acc = old acc + P V.", "", at, 8)
