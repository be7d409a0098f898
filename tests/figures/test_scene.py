"""Scenes as data: what a frame refuses, how numbers are written, and that the player gets every shape it needs."""

import json

import pytest

from flashkit.figures.scene import Scene, Shape, number
from flashkit.figures.wire import Control, package


@pytest.fixture
def frame():
    return Scene("a title", "what it shows", 100, 50).frame("a caption")


def test_a_name_is_used_once_in_a_frame(frame):
    frame.rect("S", 0, 0, 10, 10)
    with pytest.raises(ValueError, match="named 'S' already"):
        frame.text("S", 0, 0, "x")


def test_text_below_ten_points_is_refused(frame):
    with pytest.raises(ValueError, match="at least 17 units"):
        frame.text("small", 0, 0, "x", size=12)


@pytest.mark.parametrize("style", [{"fill": "pink"}, {"hatch": "waves"}, {"align": "left"}])
def test_only_the_course_palette_is_known(frame, style):
    with pytest.raises(ValueError, match="must be one of"):
        frame.rect("S", 0, 0, 10, 10, **style)


@pytest.mark.parametrize(
    "value, text",
    [
        (1.25, "1.25"),
        (-0.5, "−0.50"),
        (-0.001, "0.00"),
        (float("-inf"), "−∞"),
        (float("inf"), "∞"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_have_a_real_minus_and_infinities(value, text):
    assert number(value) == text


def test_the_package_holds_each_shape_once_and_every_frame_in_full():
    scenes = {}
    for choice in (0, 1):
        scene = Scene("a title", "what it shows", 100, 50)
        for step in range(3):
            frame = scene.frame(f"step {step}")
            frame.rect("same", 0, 0, 10, 10, "x", fill="Q")
            frame.rect("moves", step, choice, 10, 10)
        scenes[choice,] = scene
    data = json.loads(json.dumps(package(scenes, [Control("choice", ("a", "b"))])))
    assert len(data["shapes"]) == 1 + 3 * 2
    for (choice,), scene in scenes.items():
        for sent, frame in zip(data["scenes"][str(choice)]["frames"], scene.frames, strict=True):
            shapes = [Shape(**data["shapes"][n]) for n in sent["show"]]
            assert shapes == list(frame.shapes.values())
            assert sent["caption"] == frame.caption
