"""For authors: `python -m flashkit.predict ID ANSWER` prints the key under which questions.py keeps an answer."""

from __future__ import annotations

import sys

from flashkit.predict.question import read_number
from flashkit.predict.questions import QUESTIONS


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in QUESTIONS:
        print("usage: python -m flashkit.predict ID ANSWER, with ID one of: " + ", ".join(QUESTIONS), file=sys.stderr)
        return 2
    question, answer = QUESTIONS[arguments[0]], arguments[1]
    if not question.choices and (answer := read_number(answer, question.unit)) is None:
        print(f"{arguments[1]!r} is no number, as question {question.id} wants", file=sys.stderr)
        return 2
    print(question.key(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
