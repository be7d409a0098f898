"""The fixed colours: text on every fill is readable in both themes, and the shapes stand out from the paper."""

import pytest

from flashkit.figures.palette import COLOURS, DARK, LIGHT, PALE, contrast, mix

THEMES = {"light": LIGHT, "dark": DARK}


def test_contrast_is_wcags():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#0072B2", "#ffffff") == pytest.approx(5.2, abs=0.05)


@pytest.mark.parametrize("name", COLOURS)
def test_text_on_a_full_fill_is_readable(name):
    assert contrast(COLOURS[name].fill, COLOURS[name].on) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", COLOURS)
def test_ink_on_a_pale_fill_is_readable(name, theme):
    theme = THEMES[theme]
    assert contrast(mix(COLOURS[name].fill, theme.paper, PALE), theme.ink) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_ink_and_focus_ring_stand_out(theme):
    theme = THEMES[theme]
    assert contrast(theme.ink, theme.paper) >= 7
    assert contrast(theme.focus, theme.paper) >= 3


def test_no_two_meanings_share_a_colour():
    fills = [colour.fill for colour in COLOURS.values()]
    assert len(set(fills)) == len(fills)
