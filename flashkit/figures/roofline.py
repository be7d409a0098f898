"""Chapter 1: the roofline of a GPU with naive and fused attention on it as N grows."""

from __future__ import annotations

import math
from functools import cache

from flashkit.figures.figure import Figure
from flashkit.figures.palette import PALE
from flashkit.figures.scene import Frame, Scene
from flashkit.figures.wire import Control
from reference import traffic
from reference.machines import MACHINES, Machine

WIDTH, HEIGHT = 960, 500
LEFT, RIGHT, TOP, BOTTOM = 96, 920, 20, 420  # the plot's frame
INTENSITY = (1, 4096)  # FLOP a byte, on a log scale
SPEED = (0.1, 4096)  # TFLOP/s, on a log scale
LENGTHS = tuple(2**n for n in range(8, 17))
DIMENSIONS = (64, 128, 256)
TILES = (64, 128, 256)
BLOCK_K = 128


def roofline() -> Figure:
    """Attainable speed against arithmetic intensity; steps double N, controls choose GPU, d and the query tile."""
    scenes = {
        (g, n, b): _scene(gpu, d, block_q)
        for g, gpu in enumerate(MACHINES)
        for n, d in enumerate(DIMENSIONS)
        for b, block_q in enumerate(TILES)
    }
    return Figure.of(
        scenes,
        Control("GPU", tuple(gpu.name for gpu in MACHINES), "select", 1),
        Control("d", tuple(map(str, DIMENSIONS)), "range", 0),
        Control("query tile", tuple(map(str, TILES)), "range", 1),
    )


@cache
def intensities(N: int, d: int, block_q: int) -> tuple[float, float]:
    """FLOP a byte of naive and of fused 16-bit attention, one head, with the bytes of :mod:`reference.traffic`."""
    shape, flop = traffic.Shape(N, N, d, d, block_q, BLOCK_K), 4 * N * N * d
    return flop / traffic.total(traffic.naive(shape)), flop / traffic.total(traffic.fa2(shape))


def _scene(gpu: Machine, d: int, block_q: int) -> Scene:
    scene = Scene(
        "Roofline: what memory and matrix units allow",
        "Attainable TFLOP/s against FLOP per byte on log scales: a rising memory roof meets a flat compute roof; "
        "naive attention sits under the memory roof, fused attention further to the right.",
        WIDTH,
        HEIGHT,
    )
    for N in LENGTHS:
        slow, fast = intensities(N, d, block_q)
        frame = scene.frame(
            f"N = {N:,}, d = {d}: naive {slow:.0f} FLOP a byte, at most {_speed(gpu.attainable(slow))} TFLOP/s; fused "
            f"{fast:.0f} and {_speed(gpu.attainable(fast))}. "
            f"{gpu.name} needs {gpu.balance:.0f} FLOP a byte to be busy.",
            f"{N:,}",
        )
        _axes(frame)
        _roofs(frame, gpu)
        _point(frame, "naive", slow, gpu, "S", -1)
        _point(frame, "fused", fast, gpu, "O", 1)
    return scene


def _x(intensity: float) -> float:
    low, high = map(math.log2, INTENSITY)
    return LEFT + (RIGHT - LEFT) * (math.log2(intensity) - low) / (high - low)


def _y(tflops: float) -> float:
    low, high = map(math.log2, SPEED)
    return BOTTOM - (BOTTOM - TOP) * (math.log2(tflops) - low) / (high - low)


def _axes(frame: Frame) -> None:
    frame.rect("plot", LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP)
    for exponent in range(0, 13, 2):
        x = _x(2**exponent)
        frame.line(f"x tick {exponent}", x, BOTTOM, x, BOTTOM + 6)
        frame.text(f"x label {exponent}", x, BOTTOM + 20, f"{2**exponent:,}")
    frame.text(
        "x title", (LEFT + RIGHT) / 2, BOTTOM + 52, "arithmetic intensity, FLOP a byte of HBM traffic", bold=True
    )
    for exponent in range(0, 4):
        y = _y(10**exponent)
        frame.line(f"y tick {exponent}", LEFT - 6, y, LEFT, y)
        frame.text(f"y label {exponent}", LEFT - 12, y, f"{10**exponent:,}", align="end")
    frame.text("y title", LEFT + 10, TOP + 18, "TFLOP/s", align="start", bold=True)


def _roofs(frame: Frame, gpu: Machine) -> None:
    bend, top = _x(gpu.balance), _y(gpu.tflops)
    first = max(INTENSITY[0], SPEED[0] / gpu.hbm_tbs)
    frame.line("memory roof", _x(first), _y(first * gpu.hbm_tbs), bend, top, stroke=4)
    frame.line("compute roof", bend, top, RIGHT, top, stroke=4)
    frame.line("balance", bend, top, bend, BOTTOM, dashed=True)
    frame.text("compute label", RIGHT - 10, top + 20, f"{gpu.name}: {gpu.tflops:,.0f} TFLOP/s", align="end")
    frame.text("memory label", _x(first) + 20, _y(first * gpu.hbm_tbs) - 90, f"HBM {gpu.hbm_tbs:g} TB/s", align="start")
    frame.text("balance label", bend + 10, BOTTOM - 18, f"balance {gpu.balance:.0f}", align="start")


def _point(frame: Frame, name: str, intensity: float, gpu: Machine, role: str, side: int) -> None:
    x, y = _x(intensity), _y(gpu.attainable(intensity))
    frame.line(f"{name} drop", x, y, x, BOTTOM, dashed=True, stroke=1)
    frame.rect(f"{name} point", x - 9, y - 9, 18, 18, fill=role, stroke=2)
    height = _y(SPEED[0]) - 60 - (0 if side < 0 else 44)
    label_x = x - 132 if side < 0 else x + 8
    frame.rect(f"{name} label", label_x, height - 18, 124, 34, f"{name} {intensity:.0f}", fill=role, strength=PALE)


def _speed(tflops: float) -> str:
    return f"{tflops:.0f}" if tflops >= 10 else f"{tflops:.1f}"
