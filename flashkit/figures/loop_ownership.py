"""Chapter 4: which loop owns dK and dV and which dQ, and the race when nobody owns dQ."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flashkit.figures.example import dO as EXAMPLE_dO
from flashkit.figures.example import example
from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from flashkit.figures.wire import Control
from reference import backward
from reference.forward import Problem, cut, tiled, visit

WIDTH, CELL, LEFT, TOP = 960, 76, 190, 130
KERNELS = ("two kernels", "one kernel, atomic adds", "one kernel, plain stores")


@dataclass
class View:
    """Gradients so far (the whole arrays), tiles in use, who is on chip, and tiles already done."""

    dQ: np.ndarray
    dK: np.ndarray
    dV: np.ndarray
    now: list[tuple[int, int]] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)
    done: set[tuple[int, int]] = field(default_factory=set)

    def next(self, now: list[tuple[int, int]], owned: set[str]) -> View:
        arrays = (self.dQ.copy(), self.dK.copy(), self.dV.copy())
        return View(*arrays, now, owned, self.done | set(self.now))


def loop_ownership(problem: Problem | None = None, dO: np.ndarray | None = None) -> Figure:
    """The score tiles of the backward, with the first element of every gradient tile as it adds up.

    ``problem`` is a :class:`reference.forward.Problem`, by default the 5 tokens in tiles of 2, full; dO ``(N_q, d_v)``.
    The control chooses two kernels without atomics, one with atomic adds, or one whose programs overwrite each other.
    """
    problem = example(causal=False, block_q=2, block_k=2) if problem is None else problem
    dO = EXAMPLE_dO if dO is None else dO
    scenes = {(0,): two_kernels(problem, dO), (1,): one_kernel(problem, dO, True), (2,): one_kernel(problem, dO, False)}
    return Figure.of(scenes, Control("backward as", KERNELS))


def two_kernels(p: Problem, dO: np.ndarray) -> Scene:
    """Key tiles outside for dK and dV, then query tiles outside for dQ: every gradient tile has one owner."""
    scene, parts = _scene(p), _Parts(p, dO)
    view = View(*(np.zeros(x.shape) for x in (p.Q, p.K, p.V)))
    _draw(
        scene,
        p,
        view,
        "Two kernels: each gradient tile belongs to one program, so nothing is added atomically.",
        "start",
    )
    for j in range(p.key_tiles):
        for i in backward.seen_by(p, j):
            view = view.next([(i, j)], {f"dK{j}", f"dV{j}"})
            parts.add_keys(view, i, j)
            says = f"Kernel 1, program {j}: Q{i} and dO{i} come in; dK{j} and dV{j} stay on chip and grow."
            _draw(scene, p, view, says, f"K{j}" if i == backward.seen_by(p, j)[0] else "")
    view = view.next([], set())
    view.done = set()
    for i in range(p.query_tiles):
        for j in visit(p, i):
            view = view.next([(i, j)], {f"dQ{i}"})
            parts.add_query(view, i, j)
            says = f"Kernel 2, program {i}: K{j} and V{j} come in; S is computed again; dQ{i} stays on chip and grows."
            _draw(scene, p, view, says, f"Q{i}" if j == 0 else "")
    _draw(
        scene,
        p,
        view.next([], set()),
        "Every gradient was written once, by its owner: 7 matrix products, no atomics.",
        "end",
    )
    return scene


def one_kernel(p: Problem, dO: np.ndarray, atomic: bool) -> Scene:
    """One program a key tile, all at the same time: they own dK and dV, and meet at the same rows of dQ."""
    scene, parts = _scene(p), _Parts(p, dO)
    view = View(*(np.zeros(x.shape) for x in (p.Q, p.K, p.V)))
    says = f"One kernel: {p.key_tiles} programs, one a key tile, start at the same time; S is computed once."
    _draw(scene, p, view, says, "start")
    for i in range(p.query_tiles):
        programs = [j for j in range(p.key_tiles) if i in backward.seen_by(p, j)]
        if not programs:
            continue
        before = view.dQ.copy()
        view = view.next([(i, j) for j in programs], {f"d{t}{j}" for t in "KV" for j in programs} | {f"dQ{i}"})
        for j in programs:
            parts.add_keys(view, i, j)
            if not atomic:
                view.dQ[p.rows(i)] = before[p.rows(i)]  # what the program read before the others stored
            parts.add_query(view, i, j)
        who = f"Programs {', '.join(map(str, programs))}"
        if atomic:
            says = f"{who} add their parts of dQ{i} atomically: all arrive, in any order."
        else:
            lost = f"{len(programs) - 1} of {len(programs)} parts are lost"
            says = f"{who} read dQ{i}, add, and store: the last store wins, {lost}."
        _draw(scene, p, view, says, f"Q{i}")
    right = np.allclose(view.dQ, backward.dense(p, dO)[0])
    says = "dQ is right, but atomic adds in fp32 arrive in any order, so the last bits vary from run to run."
    wrong = "dQ is wrong, dK and dV are right: their owners never shared them. The interpreter hides this race."
    _draw(scene, p, view.next([], set()), says if right else wrong, "end")
    return scene


class _Parts:
    """The contributions of single score tiles, by the oracle's steps."""

    def __init__(self, p: Problem, dO: np.ndarray):
        self.p, self.dO = p, np.asarray(dO, float)
        O, self.lse = tiled(p)
        self.D = backward.row_dot(self.dO, O)

    def _tile(self, i: int, j: int):
        tile = cut(self.p, i, j)
        P = backward.probabilities(tile, self.lse[tile.rows])
        return tile, P, backward.score_gradient(P, self.dO[tile.rows], tile.V_j, self.D[tile.rows])

    def add_keys(self, view: View, i: int, j: int) -> None:
        tile, P, dS = self._tile(i, j)
        keys, real = tile.keys[tile.inside], tile.inside
        view.dV[keys] += (P.T @ self.dO[tile.rows])[real]
        view.dK[keys] += (dS.T @ tile.Q_i * self.p.scale)[real]

    def add_query(self, view: View, i: int, j: int) -> None:
        tile, _, dS = self._tile(i, j)
        view.dQ[tile.rows] += dS @ tile.K_j * self.p.scale


def _scene(p: Problem) -> Scene:
    return Scene(
        "Who owns which gradient in the backward",
        f"{p.query_tiles} × {p.key_tiles} score tiles with dK and dV above the key tiles, dQ beside the query tiles; "
        "the boxes of gradients that are on chip are marked, and their first element is shown as it adds up.",
        WIDTH,
        TOP + p.query_tiles * CELL + 60,
    )


def _draw(scene: Scene, p: Problem, view: View, caption: str, tick: str) -> None:
    frame = scene.frame(caption, tick)
    wide = min(150, (WIDTH - LEFT - 190) / p.key_tiles)
    for j in range(p.key_tiles):
        x = LEFT + j * wide
        for y, name, array in ((6, f"dV{j}", view.dV), (60, f"dK{j}", view.dK)):
            _gradient(frame, name, x, y, wide - 6, 48, array[j * p.block_k, 0], view)
    for i in range(p.query_tiles):
        _gradient(frame, f"dQ{i}", LEFT - 160, TOP + i * CELL, 150, CELL - 6, view.dQ[i * p.block_q, 0], view)
        for j in range(p.key_tiles):
            now = (i, j) in view.now
            visited = now or (i, j) in view.done
            style = {"fill": "S", "strength": 1 if now else PALE} if visited else {}
            place = (LEFT + j * wide, TOP + i * CELL, wide - 6, CELL - 6)
            frame.rect(f"tile[{i},{j}]", *place, f"S{i}{j}" if visited else "", stroke=4 if now else 1.5, **style)
    x = WIDTH - 180
    for at, (text, style) in enumerate(
        (("computed now", {"fill": "S"}), ("done", {"fill": "S", "strength": PALE}), ("on chip", {"fill": "SRAM"}))
    ):
        frame.rect(f"legend {text}", x, TOP + at * 42, 28, 28, **style)
        frame.text(f"legend text {text}", x + 38, TOP + at * 42 + 14, text, align="start", size=17)
    says = "Each gradient shows the first element of its tile."
    frame.text("note", LEFT - 160, TOP + p.query_tiles * CELL + 30, says, align="start", size=17)


def _gradient(frame: Frame, name: str, x: float, y: float, w: float, h: float, value: float, view: View) -> None:
    owned = name in view.owned
    role = "SRAM" if owned else name[1]
    text = f"{name} {number(value)}"
    frame.rect(name, x, y, w, h, text, fill=role, strength=1 if owned else PALE, stroke=3 if owned else 1.5, bold=owned)
