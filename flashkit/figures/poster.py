"""One frame as a PNG, through matplotlib: what stands in for the player where no kernel runs."""

from __future__ import annotations

import base64
import html
import io
import textwrap

from flashkit.figures.palette import COLOURS, LIGHT, mix
from flashkit.figures.scene import Frame, Scene, Shape

DPI = 120
COLOURS_OF_A_POSTER = 128  # the fixed colours, and shades between them at the edges of letters
HEAD, LINE, MARGIN = 44, 26, 14  # units: the title's band, a line of the caption, space around it
HATCH = {"": None, "diagonal": "///", "dots": "..", "cross": "xx"}
ANCHOR = {"start": "left", "middle": "center", "end": "right"}


def png(scene: Scene, frame: int = 0) -> bytes:
    """Frame ``frame`` with the scene's title above and its caption below, on opaque white, fonts of 10 pt and more.

    Raises IndexError when there is no such frame.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = scene.frames[frame]
    caption = textwrap.wrap(shown.caption, int(scene.width / 9.6))
    height = HEAD + scene.height + MARGIN * 2 + LINE * len(caption)
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "hatch.linewidth": 0.7, "hatch.color": "#555555"}):
        figure = Figure(figsize=(scene.width / DPI, height / DPI), dpi=DPI, facecolor=LIGHT.paper)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, scene.width)
        axes.set_ylim(scene.height + MARGIN * 2 + LINE * len(caption), -HEAD)
        draw(axes, shown)
        title = Shape("text", "title", MARGIN, -HEAD / 2, text=scene.title, size=22, align="start", bold=True)
        _text(axes, title, LIGHT.ink)
        for at, line in enumerate(caption):
            y = scene.height + MARGIN + LINE * (at + 0.5)
            _text(axes, Shape("text", "caption", MARGIN, y, text=line, align="start"), LIGHT.ink)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DPI, facecolor=LIGHT.paper)
    return _with_few_colours(out)


def _with_few_colours(png: io.BytesIO) -> bytes:
    """The same picture in a third of the bytes: a notebook keeps every poster that it ever showed."""
    from PIL import Image  # matplotlib needs it to write PNG

    out = io.BytesIO()
    image = Image.open(png).convert("RGB").quantize(COLOURS_OF_A_POSTER, dither=Image.Dither.NONE)
    image.save(out, "png", optimize=True)
    return out.getvalue()


def image_element(png: bytes, alt: str) -> str:
    """``png`` in HTML, where it has a text for those who cannot see it; JupyterLab and nbconvert drop an image's."""
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def draw(axes, frame: Frame) -> None:
    """Put a frame's shapes on matplotlib axes whose y runs down, in scene units."""
    for order, shape in enumerate(frame.shapes.values()):
        {"rect": _rect, "text": _free_text, "line": _line, "arrow": _arrow}[shape.kind](axes, shape, order)


def _rect(axes, s: Shape, order: int) -> None:
    from matplotlib.patches import Rectangle

    face = mix(COLOURS[s.fill].fill, LIGHT.paper, s.strength) if s.fill else "none"
    style = {"linestyle": (0, (4, 3)) if s.dashed else "-", "linewidth": _points(s.stroke)}
    edge = LIGHT.ink if s.stroke else "none"
    axes.add_patch(
        Rectangle((s.x, s.y), s.w, s.h, facecolor=face, edgecolor="none", hatch=HATCH[s.hatch], zorder=order)
    )
    axes.add_patch(Rectangle((s.x, s.y), s.w, s.h, facecolor="none", edgecolor=edge, zorder=order, **style))
    if s.text:
        _text(axes, s, COLOURS[s.fill].on if s.fill and s.strength > 0.5 else LIGHT.ink, order)


def _free_text(axes, s: Shape, order: int) -> None:
    _text(axes, s, LIGHT.ink, order)


def _text(axes, s: Shape, colour: str, order: int = 0) -> None:
    x = s.x + {"start": 6 if s.w else 0, "middle": s.w / 2, "end": s.w - 6 if s.w else 0}[s.align]
    axes.text(
        x, s.y + s.h / 2, s.text.replace("$", r"\$"), color=colour, size=_points(s.size), ha=ANCHOR[s.align],
        va="center_baseline" if "\n" not in s.text else "center", weight="bold" if s.bold else "normal", zorder=order,
        linespacing=1.25,
    )  # fmt: skip


def _line(axes, s: Shape, order: int, **arrow) -> None:
    style = {"linestyle": (0, (4, 3)) if s.dashed else "-", "linewidth": _points(s.stroke)}
    axes.plot((s.x, s.x + s.w), (s.y, s.y + s.h), color=LIGHT.ink, zorder=order, **style)


def _arrow(axes, s: Shape, order: int) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            (s.x, s.y), (s.x + s.w, s.y + s.h), arrowstyle="-|>", mutation_scale=_points(8 + 4 * s.stroke),
            linewidth=_points(s.stroke), color=LIGHT.ink, shrinkA=0, shrinkB=0, zorder=order,
            linestyle=(0, (4, 3)) if s.dashed else "-",
        )
    )  # fmt: skip


def _points(units: float) -> float:
    return units * 72 / DPI
