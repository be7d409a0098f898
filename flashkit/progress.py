"""A learner's progress: chapters read, boxes answered, checks passed, in one local JSON file that is never sent.

from flashkit.progress import progress, read
read("03")      # the last cell of a chapter
progress()      # what is done so far
"""

from __future__ import annotations

import html
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]


def place() -> Path:
    """The file: `work/progress.json` of the course (ignored by git), or where FLASHKIT_PROGRESS says."""
    return Path(os.environ.get("FLASHKIT_PROGRESS") or COURSE / "work" / "progress.json")


@dataclass(repr=False)
class Progress:
    """What the file holds: chapters read; per box, tries and whether it is right; per exercise, the best points."""

    chapters: list[str] = field(default_factory=list)
    boxes: dict[str, dict] = field(default_factory=dict)
    checks: dict[str, dict] = field(default_factory=dict)

    def table(self) -> list[tuple[str, str, str, str]]:
        """(chapter, read, boxes, checks) for each chapter that has something."""
        chapters = {*self.chapters, *(id.split(".")[0] for id in [*self.boxes, *self.checks])}
        return [self._line(chapter) for chapter in sorted(chapters)]

    def _line(self, chapter: str) -> tuple[str, str, str, str]:
        boxes = [box for id, box in self.boxes.items() if id.startswith(f"{chapter}.")]
        right = sum(box["right"] for box in boxes)
        checks = [
            f"{id} {check['points']:g} of {check['out_of']:g}"
            for id, check in sorted(self.checks.items())
            if id.startswith(f"{chapter}.")
        ]
        read = "yes" if chapter in self.chapters else "not yet"
        return (
            chapter,
            read,
            f"{right} right of {len(boxes)} tried" if boxes else "none yet",
            ", ".join(checks) or "none yet",
        )

    def __repr__(self) -> str:
        lines = [f"chapter {c}: read {r}; boxes: {b}; checks: {k}" for c, r, b, k in self.table()]
        return "\n".join(lines) or "Nothing yet: answer a box or check an exercise."

    def _repr_html_(self) -> str:
        if not self.table():
            return f"<p>{self}</p>"
        heads = "".join(
            f"<th scope='col' style='text-align:left'>{head}</th>" for head in ("chapter", "read", "boxes", "checks")
        )
        rows = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self.table()
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def progress() -> Progress:
    """What is done so far. A file that cannot be read counts as empty; it is put aside, not overwritten."""
    file = place()
    try:
        return Progress(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Progress()
    except (OSError, ValueError, TypeError):
        _put_aside(file)
        return Progress()


def read(chapter: str) -> Progress:
    """Mark a chapter, such as "03", as read; gives what is done so far."""
    done = progress()
    done.chapters = sorted({*done.chapters, chapter})
    _keep(done)
    return done


def answered(id: str, right: bool) -> None:
    """Keep an answer to box ``id``; once right it stays right."""
    done = progress()
    before = done.boxes.get(id, {"tries": 0, "right": False})
    done.boxes[id] = {"tries": before["tries"] + 1, "right": before["right"] or right}
    _keep(done)


def checked(id: str, points: float, out_of: float) -> None:
    """Keep the best points of exercise ``id``."""
    done = progress()
    best = max(points, done.checks.get(id, {"points": 0})["points"])
    done.checks[id] = {"points": best, "out_of": out_of}
    _keep(done)


def in_a_notebook() -> bool:
    """Only what happens in a notebook is a learner's progress; scripts and tests are not."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


def _keep(done: Progress) -> None:
    """Write the file in one step. Without a work/ that can be written nothing is kept: it is not worth an error."""
    file = place()
    if not file.parent.is_dir():
        return
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        new.write_text(json.dumps(vars(done), indent=1, sort_keys=True), encoding="utf-8")
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)


def _put_aside(file: Path) -> None:
    aside = file.with_suffix(".unreadable.json")
    try:
        file.replace(aside)
        print(f"{file} could not be read and is now {aside.name}; progress starts anew.", file=sys.stderr)
    except OSError:
        pass
