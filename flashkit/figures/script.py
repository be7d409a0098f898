"""The browser side of the widgets: a script is page.js and one more file, joined, because a widget is one module."""

from __future__ import annotations

from pathlib import Path

SHARED = Path(__file__).with_name("page.js")


def script(path: Path) -> str:
    """The module's text: what all widgets share, then ``path``."""
    return SHARED.read_text(encoding="utf-8") + "\n" + path.read_text(encoding="utf-8")


PLAYER = Path(__file__).with_name("player.js")
