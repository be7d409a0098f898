"""The predict box: a small form in the notebook (drawn by box.js), judged here, its result kept as progress."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from flashkit import progress
from flashkit.figures.palette import THEMES
from flashkit.figures.script import script
from flashkit.predict.question import Question, judge

OPENING = {"right": "Right.", "known": "Not yet.", "wrong": "Not yet.", "unreadable": "Not readable."}


class Box(anywidget.AnyWidget):
    """Shows ``question``; the browser never holds the answer."""

    _esm = script(Path(__file__).with_name("box.js"))
    data = traitlets.Dict().tag(sync=True)
    verdict = traitlets.Dict().tag(sync=True)

    def __init__(self, question: Question):
        self.question, self.tries = question, 0
        shown = {"ask": question.ask, "unit": question.unit, "choices": list(question.choices), "themes": THEMES}
        super().__init__(data=shown)
        self.on_msg(lambda widget, content, buffers: self.answer(str(content.get("answer", ""))))

    def answer(self, text: str) -> None:
        """Judge an answer, show the sentence, and keep right or not in the progress file."""
        judgement = judge(self.question, text)
        self.tries += judgement.kind != "unreadable"
        says = f"{OPENING[judgement.kind]} {judgement.says}"
        self.verdict = {"kind": judgement.kind, "says": says, "tries": self.tries}
        if judgement.kind != "unreadable":
            progress.answered(self.question.id, judgement.kind == "right")
