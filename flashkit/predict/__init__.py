"""Predict boxes: a question with a number or a choice, answered before the code below it runs.

from flashkit.predict import predict
predict("01.one-matrix")
"""

from __future__ import annotations

import difflib
import importlib.util

from flashkit.figures import cell_widgets
from flashkit.predict.question import Question
from flashkit.predict.questions import QUESTIONS


class Shown:
    """A question on the page: a box where anywidget is installed, else its text."""

    def __init__(self, question: Question):
        self.question, self.box = question, None
        if importlib.util.find_spec("anywidget"):
            from flashkit.predict.box import Box

            self.box = Box(question)

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.box is not None and not cell_widgets.is_open(self.box):
            self.box = type(self.box)(self.question)  # its cell was run anew, and another one shows it
        bundle = {} if self.box is None else cell_widgets.show(self.box)
        return bundle | {"text/plain": str(self)}

    def __str__(self) -> str:
        unit = f" (in {self.question.unit})" if self.question.unit else ""
        choices = "".join(f"\n  - {choice}" for choice in self.question.choices)
        return f"Predict: {self.question.ask}{unit}{choices}"


def predict(id: str) -> Shown:
    """Ask question ``id``. Raises ValueError, with the nearest known id, when there is none."""
    if id not in QUESTIONS:
        near = difflib.get_close_matches(id, QUESTIONS, 1, 0)
        raise ValueError(f"There is no question {id!r}. Did you mean {near[0]!r}?")
    return Shown(QUESTIONS[id])
