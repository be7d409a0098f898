"""The command line ``python -m reference.lab``: is the tiled algorithm the same function, and are its gradients right?

Exit status: 0 every check passes, 1 a check fails, 2 bad arguments.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace

import numpy as np

from reference import backward, forward
from reference.online_softmax import State, shrink

FORWARD_BOUND = 1e-12
GRADIENT_BOUND = 2e-8  # central differences in float64 are not closer than this
LARGEST = 64  # central differences run the dense forward 6 * length * dim times


@dataclass(frozen=True)
class Break:
    """A deliberate mistake in the tiled forward: the step it replaces, and which checks it must make fail."""

    steps: forward.Steps
    what: str
    because: str
    fails: tuple[str, ...]
    harmless: str


def _keep_old_numerator(state: State, m_new: np.ndarray) -> State:
    return State(m_new, shrink(state.m, m_new) * state.l, state.acc)


def _unscaled(tile: forward.Tile) -> np.ndarray:
    return tile.Q_i @ tile.K_j.T


def _strictly_before(S: np.ndarray, tile: forward.Tile) -> np.ndarray:
    seen = tile.visible & (tile.keys[None, :] < tile.rows[:, None] + tile.problem.offset)
    return np.where(seen, S, -np.inf)


EVERY_CHECK = ("O, FA2 order", "O, FA1 order", "lse", "dQ", "dK", "dV")

BREAKS = {
    "alpha": Break(
        replace(forward.STEPS, rescale=_keep_old_numerator),
        "the tiled forward no longer multiplies the old numerator acc by alpha",
        "O is wrong, and so is D = rowsum(dO*O), which dQ and dK read; lse and dV never read acc",
        ("O, FA2 order", "O, FA1 order", "dQ", "dK"),
        "no maximum rose after a row's first tile (alpha = 1); try a --block below --length, or another --seed",
    ),
    "scale": Break(
        replace(forward.STEPS, score=_unscaled),
        "the tiled forward leaves out 1/sqrt(d); the dense forward and the backward keep it",
        "O and lse are those of another temperature, and the backward rebuilds every P from that lse",
        EVERY_CHECK,
        "1/sqrt(d) is 1; try --dim 4",
    ),
    "causal": Break(
        replace(forward.STEPS, mask=_strictly_before),
        "the tiled forward masks with j < i instead of j <= i (causal is switched on)",
        "every row loses its own key and row 0 sees none, so O and lse are wrong, and every P rebuilt from that lse",
        EVERY_CHECK,
        "every row still saw its own key",
    ),
}


@dataclass(frozen=True)
class Check:
    name: str
    against: str
    error: float
    bound: float

    @property
    def passes(self) -> bool:
        return self.error < self.bound  # False for NaN


def draw(length: int, dim: int, block: int, causal: bool, seed: int) -> tuple[forward.Problem, np.ndarray]:
    """One head of standard normal Q, K, V, and a dO, each ``(length, dim)``."""
    rng = np.random.default_rng(seed)
    Q, K, V, dO = rng.standard_normal((4, length, dim))
    return forward.Problem(Q, K, V, causal=causal, block_q=block, block_k=block), dO


def run_checks(problem: forward.Problem, dO: np.ndarray, steps: forward.Steps = forward.STEPS) -> list[Check]:
    """Tiled forward (made of ``steps``) against dense, and tiled backward on its O and lse against differences."""
    O, lse = forward.dense(problem)
    fa2, fa1 = forward.tiled(problem, steps), forward.tiled_fa1(problem, steps)
    checks = [
        Check("O, FA2 order", "dense", _worst(O, fa2[0]), FORWARD_BOUND),
        Check("O, FA1 order", "dense", _worst(O, fa1[0]), FORWARD_BOUND),
        Check("lse", "dense", max(_worst(lse, fa2[1]), _worst(lse, fa1[1])), FORWARD_BOUND),
    ]
    two, one = backward.tiled(problem, dO, fa2), backward.one_kernel(problem, dO, fa2)
    for index, name in enumerate("QKV"):

        def loss(x, name=name):
            return float((dO * forward.dense(replace(problem, **{name: x}))[0]).sum())

        truth = backward.central_differences(loss, getattr(problem, name))
        error = max(_worst(truth, two[index]), _worst(truth, one[index]))
        checks.append(Check("d" + name, "differences", error, GRADIENT_BOUND))
    return checks


def _worst(expected: np.ndarray, actual: np.ndarray) -> float:
    """Largest absolute difference; equal infinities differ by 0, NaN stays NaN."""
    same = expected == actual
    return float(np.where(same, 0.0, np.abs(np.where(same, 0.0, expected) - np.where(same, 0.0, actual))).max())


def report(checks: list[Check]) -> str:
    lines = [f"{'check':<14}{'against':<13}{'largest error':>13}{'bound':>9}"]
    for c in checks:
        lines.append(f"{c.name:<14}{c.against:<13}{c.error:>13.1e}{c.bound:>9.0e}  {'pass' if c.passes else 'FAIL'}")
    return "\n".join(lines)


def verdict(checks: list[Check], broken: Break | None) -> str:
    failed = tuple(c.name for c in checks if not c.passes)
    if broken is None:
        return "FAIL: " + "; ".join(failed) if failed else "PASS"
    if not failed:
        return f"PASS: the break changed nothing here: {broken.harmless}"
    if failed == broken.fails:
        return f"FAIL as expected: {'; '.join(failed)}\n  because {broken.because}"
    return f"FAIL, but not as expected: failed {'; '.join(failed)}; expected to fail {'; '.join(broken.fails)}"


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message):
        print(f"reference.lab: {' '.join(message.split())}", file=sys.stderr)
        sys.exit(2)


def _whole(lowest: int, highest: int | None = None):
    bounds = f"from {lowest} to {highest}" if highest else f"of at least {lowest}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = lowest - 1
        if value < lowest or (highest and value > highest):
            raise argparse.ArgumentTypeError(f"needs a whole number {bounds}, but got {text!r}")
        return value

    return parse


def main(arguments: list[str] | None = None) -> int:
    parser = _OneLineParser(prog="python -m reference.lab", description=__doc__.splitlines()[0], allow_abbrev=False)
    size = _whole(1, LARGEST)
    parser.add_argument("--length", type=size, default=7, help="queries and keys (default 7)")
    parser.add_argument("--block", type=size, default=3, help="rows and keys of a tile (default 3)")
    parser.add_argument("--dim", type=size, default=4, help="head dimension (default 4)")
    parser.add_argument("--causal", action="store_true", help="a query sees no later key")
    parser.add_argument("--seed", type=_whole(0), default=0, help="of the random inputs (default 0)")
    parser.add_argument("--break", dest="fault", choices=BREAKS, metavar="|".join(BREAKS), help="inject this mistake")
    options = parser.parse_args(arguments)
    broken = BREAKS.get(options.fault)
    causal = options.causal or options.fault == "causal"
    problem, dO = draw(options.length, options.dim, options.block, causal, options.seed)
    print(f"length {options.length}, block {options.block}, dim {options.dim}, causal {causal}, seed {options.seed}")
    if broken:
        print(f"break: {broken.what}\n  expected to fail: {'; '.join(broken.fails)}")
    checks = run_checks(problem, dO, broken.steps if broken else forward.STEPS)
    print(report(checks))
    print(verdict(checks, broken))
    return 0 if all(c.passes for c in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
