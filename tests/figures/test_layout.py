"""Every frame of every picture: text fits its box and the canvas, free texts do not overlap, captions are sentences."""

from functools import cache

import pytest

from flashkit.figures import PICTURES

ImageFont = pytest.importorskip("PIL.ImageFont", reason="not run here: needs pillow, which comes with matplotlib")
matplotlib = pytest.importorskip("matplotlib", reason="not run here: needs matplotlib")


@cache
def scenes(name):
    figure = PICTURES[name]()
    return list(figure.variants.values()) or [figure.scene]


@cache
def extent(text, size, bold):
    """Width and height in units; a poster's DejaVu Sans is wider than the fonts that browsers take."""
    folder = matplotlib.get_data_path() + "/fonts/ttf/"
    font = ImageFont.truetype(folder + ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"), 100)
    lines = text.split("\n")
    return max(font.getlength(line) for line in lines) * size / 100, len(lines) * size * 1.25


def box(shape):
    """The rectangle that a shape's text covers."""
    width, height = extent(shape.text, shape.size, shape.bold)
    x = shape.x + {"start": 0, "middle": (shape.w - width) / 2, "end": shape.w - width}[shape.align]
    y = shape.y + (shape.h - height) / 2
    return x, y, x + width, y + height


def distinct_frames(name):
    for scene in scenes(name):
        for at, frame in enumerate(scene.frames):
            yield scene, at, frame


@pytest.mark.parametrize("name", PICTURES)
def test_text_fits_its_rectangle(name):
    for _, at, frame in distinct_frames(name):
        for shape in frame.shapes.values():
            if shape.kind == "rect" and shape.text:
                width, height = extent(shape.text, shape.size, shape.bold)
                assert width <= shape.w + 1 and height <= shape.h + 2, (at, shape.name, shape.text, width, shape.w)


@pytest.mark.parametrize("name", PICTURES)
def test_everything_is_inside_the_canvas(name):
    for scene, at, frame in distinct_frames(name):
        for shape in frame.shapes.values():
            x0, y0, x1, y1 = (
                box(shape) if shape.kind == "text" else (shape.x, shape.y, shape.x + shape.w, shape.y + shape.h)
            )
            assert min(x0, x1) >= 0 and min(y0, y1) >= 0, (at, shape)
            assert max(x0, x1) <= scene.width + 0.01 and max(y0, y1) <= scene.height + 0.01, (at, shape, x1, y1)


@pytest.mark.parametrize("name", PICTURES)
def test_free_texts_do_not_overlap(name):
    for _, at, frame in distinct_frames(name):
        boxes = [(shape.name, box(shape)) for shape in frame.shapes.values() if shape.kind == "text"]
        for n, (a, one) in enumerate(boxes):
            for b, two in boxes[:n]:
                apart = one[2] <= two[0] + 1 or two[2] <= one[0] + 1 or one[3] <= two[1] + 5 or two[3] <= one[1] + 5
                assert apart, (at, a, b)


@pytest.mark.parametrize("name", PICTURES)
def test_every_step_has_a_caption_and_the_figure_a_sentence(name):
    for scene, at, frame in distinct_frames(name):
        assert frame.caption.endswith((".", "?")) and len(frame.caption) < 240, (at, frame.caption)
        assert scene.alt.endswith(".") and scene.title


@pytest.mark.parametrize("name", PICTURES)
def test_colour_is_never_the_only_sign(name):
    """Equal kinds of filled boxes without text or hatch (legend samples, bars, points) have a text of the same name."""
    for _, at, frame in distinct_frames(name):
        for shape in frame.shapes.values():
            silent = shape.kind == "rect" and shape.fill and not shape.text and not shape.hatch
            if silent and shape.name.startswith("legend"):
                assert f"legend text {shape.name.removeprefix('legend ')}" in frame.shapes, (at, shape.name)
