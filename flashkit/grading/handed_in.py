"""Files as they were handed in: plain ones are read, and links, folders, pipes and what is too large are not.

A link in an unpacked archive leads wherever its maker wants: to the solutions, to a neighbour, or to the gradebook,
whose copy would come back with the feedback.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flashkit.grading.sanitise import Submission, rebuild

LARGEST = 2**26  # bytes of a notebook: with all that a lab can print it has some MiB
NOT_READ = "What was handed in was not read: it is {what}. Hand in the notebook itself."


def rebuilt(path: Path, skeleton: Mapping[str, Any]) -> Submission:
    """The submission in a file on the release notebook ``skeleton``; a note says why nothing was read."""
    if why := _unreadable(path):
        submission = rebuild(b"", skeleton)
        submission.notes[0] = NOT_READ.format(what=why)
        return submission
    return rebuild(path.read_bytes(), skeleton)


def _unreadable(path: Path) -> str:
    """Why a notebook is not read; "" for a plain file. Raises OSError where there is none."""
    if _is_link(path):
        return "a link"
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        return "a folder" if stat.S_ISDIR(found.st_mode) else "no plain file"
    return f"larger than {LARGEST >> 20} MiB" if found.st_size > LARGEST else ""


def _is_link(path: Path) -> bool:
    """Itself, or the assignment's folder; the student's own folder is the teacher's to place."""
    return path.is_symlink() or path.parent.is_symlink()


def is_plain(path: Path, largest: int) -> bool:
    """Is there a plain file of at most ``largest`` bytes?"""
    return os.path.lexists(path) and not _unreadable(path) and path.stat().st_size <= largest


def plain_files(paths: Iterable[str], folder: str) -> list[str]:
    """Those of a folder's files that are no links or pipes; none where the folder itself is a link."""
    return [] if os.path.islink(folder) else [path for path in paths if stat.S_ISREG(os.lstat(path).st_mode)]
