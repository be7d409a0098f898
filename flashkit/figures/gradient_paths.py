"""Chapter 4: gradients flowing back along the paths of one query's attention, number by number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene, number
from flashkit.figures.wire import Control
from reference import backward
from reference.forward import Problem, cut, dense

WIDTH, ROW, NODE_W, NODE_H = 960, 150, 132, 66
X = {"q": 16, "k": 16, "S": 230, "P": 430, "O": 630, "V": 812}  # O between P and V: no arrow crosses a box
ROLE = {"q": "Q", "k": "K", "S": "S", "P": "S", "V": "V", "O": "O"}


def _one_query(keys, values) -> Problem:
    k, v = np.array(keys, float)[:, None], np.array(values, float)[:, None]
    return Problem(np.ones((1, 1)), k, v, scale=1.0, block_q=1, block_k=len(keys))


NUMBERS = {  # name: (the problem, with q = 1 and d = 1; dO)
    "P = 1/4, 3/4": (_one_query([0, np.log(3)], [2, 6]), 2.0),
    "P = 0.2, 0.3, 0.5": (_one_query(np.log([0.2, 0.3, 0.5]), [1, 3, 5]), 2.0),
}


@dataclass(frozen=True)
class Values:
    """Every number of the picture: forward S, P, O, and gradients, one entry a key (q, O, D: one)."""

    S: np.ndarray
    P: np.ndarray
    O: float
    dP: np.ndarray
    D: float
    dS: np.ndarray
    dq: float
    dk: np.ndarray
    dV: np.ndarray


def values(problem: Problem, dO: float) -> Values:
    """The numbers by the oracle's steps, for one query with d = d_v = 1."""
    incoming = np.array([[dO]])
    O, lse = dense(problem)
    tile = cut(problem, 0, 0)
    P = backward.probabilities(tile, lse)
    D = backward.row_dot(incoming, O)
    dQ, dK, dV = backward.dense(problem, incoming)
    dS = backward.score_gradient(P, incoming, tile.V_j, D)
    S = problem.Q @ problem.K.T * problem.scale
    dP = incoming @ problem.V.T
    return Values(S[0], P[0], O[0, 0], dP[0], D[0], dS[0], dQ[0, 0], dK[:, 0], dV[:, 0])


def gradient_paths() -> Figure:
    """One query, two or three keys: forward numbers first, then each gradient on the path that carries it."""
    scenes = {(n,): _scene(*numbers) for n, numbers in enumerate(NUMBERS.values())}
    return Figure.of(scenes, Control("numbers", tuple(NUMBERS)))


def _scene(problem: Problem, dO: float) -> Scene:
    keys = len(problem.K)
    scene = Scene(
        "Gradients along the value paths of one query",
        f"A graph of one query, {keys} keys and values: scores, weights and the output are computed along "
        "the arrows, then each gradient travels back along the same arrows.",
        WIDTH,
        max(2, keys) * ROW + 110,
    )
    paths = _Paths(problem, dO)
    for known, (now, tick, caption) in enumerate(_steps(problem, paths.values, dO)):
        paths.draw(scene.frame(caption, tick), known, now)
    return scene


STAGES = ("start", "S", "P", "O", "dO", "dV", "dP", "D", "dS", "dq", "dk")


def _steps(problem: Problem, v: Values, dO: float) -> list[tuple[str, str, str]]:
    """(the arrows in use, tick, caption) of each stage."""

    def each(numbers, digits=2):
        return ", ".join(number(n, digits) for n in numbers)

    return [
        ("", "start", "The inputs: one query q = 1, its keys k and their values V."),
        ("k-S q-S", "S", f"Forward: S = q · k = {each(v.S)}."),
        ("S-P", "P", f"P = softmax(S) = {each(v.P)}: every P depends on every S."),
        ("P-O V-O", "O", f"O = Σ P · V = {number(v.O)}."),
        ("", "dO", f"Backward: dO = {number(dO)} comes in from the loss."),
        ("O-V", "dV", f"dV = P · dO = {each(v.dV)}: the gradient is shared out by the weights."),
        ("O-P", "dP", f"dP = dO · V = {each(v.dP)}."),
        ("", "D", f"D = Σ P · dP = dO · O = {number(v.D)}: one number a row."),
        ("P-S", "dS", f"dS = P · (dP − D) = {each(v.dS)}; together they are {number(v.dS.sum())}."),
        ("S-q", "dq", f"dq = Σ dS · k = {number(v.dq, 4)}: every key pulls at the query."),
        ("S-k", "dk", f"dk = dS · q = {each(v.dk)}. P was recomputed, never stored."),
    ]


class _Paths:
    """Nodes with their value and, once known, their gradient; arrows in the direction of what flows now."""

    def __init__(self, problem: Problem, dO: float):
        self.p, self.dO, self.values = problem, dO, values(problem, dO)
        self.keys = len(problem.K)
        self.middle = 20 + self.keys * ROW / 2

    def draw(self, frame: Frame, known: int, now: str) -> None:
        stage = {name: known >= at for at, name in enumerate(STAGES)}
        v, p = self.values, self.p
        for pair in ("k-S", "q-S", "S-P", "P-O", "V-O"):
            self._arrows(frame, pair, now)
        self._node(frame, "q", "q", self._at("q"), p.Q[0, 0], v.dq if stage["dq"] else None, True, 4)
        for j in range(self.keys):
            self._node(frame, "k", f"k{j}", self._at("k", j), p.K[j, 0], v.dk[j] if stage["dk"] else None)
            self._node(frame, "S", f"S{j}", self._at("S", j), v.S[j], v.dS[j] if stage["dS"] else None, stage["S"])
            self._node(frame, "P", f"P{j}", self._at("P", j), v.P[j], v.dP[j] if stage["dP"] else None, stage["P"])
            self._node(frame, "V", f"V{j}", self._at("V", j), p.V[j, 0], v.dV[j] if stage["dV"] else None)
        self._node(frame, "O", "O", self._at("O"), v.O, self.dO if stage["dO"] else None, stage["O"])
        if stage["D"]:
            y = self.middle + self.keys * ROW / 2 + 20
            frame.rect("D", X["P"] - 60, y, NODE_W + 120, 44, f"D = {number(v.D)}", fill="softmax", bold=True)

    def _at(self, kind: str, j: int = 0) -> tuple[float, float]:
        """The middle of a node's box."""
        x = X[kind] + NODE_W / 2
        if kind == "O":
            return x, self.middle - 30
        if kind == "q":
            return x, self.middle + self.keys * ROW / 2 + 20 + NODE_H / 2
        return x, 20 + (j + 0.5) * ROW - 30

    def _node(self, frame, kind, name, at, value, gradient, known=True, digits=2) -> None:
        x, y = at[0] - NODE_W / 2, at[1] - NODE_H / 2
        half, style = NODE_H / 2, {"fill": ROLE[kind], "size": 17}
        text = f"{name} = {number(value)}" if known else name
        frame.rect(name, x, y, NODE_W, half, text, strength=1 if known else PALE, **style)
        text = f"d{name} = {number(gradient, digits)}" if gradient is not None else ""
        frame.rect(
            f"d{name}", x, y + half, NODE_W, half, text, **(style | {"strength": PALE} if text else {"size": 17})
        )

    def _arrows(self, frame: Frame, pair: str, now: str) -> None:
        a, b = pair.split("-")
        forward, back = pair in now.split(), f"{b}-{a}" in now.split()
        for j in range(self.keys):
            for i in range(self.keys) if pair == "S-P" else (j,):
                onward = 1 if X[a] < X[b] else -1
                start, end = self._side(a, j, onward), self._side(b, i, -onward)
                if back:
                    start, end = end, start
                stroke = 4 if forward or back else 1
                frame.arrow(f"{a}{j} {b}{i}", *start, *end, stroke=stroke, dashed=not (forward or back))

    def _side(self, kind: str, j: int, side: int) -> tuple[float, float]:
        x, y = self._at(kind, j)
        return x + side * NODE_W / 2, y
