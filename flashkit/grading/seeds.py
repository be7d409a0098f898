"""Secret cases: a master seed that only the teacher has, and from it one seed an exercise."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

VARIABLE = "FLASHKIT_GRADING_SEED"
FILE = ".grading_seed"  # in the class's folder; ignored by git


def master_seed(folder: Path) -> bytes:
    """From the environment, else from the folder's file, which is made on first use, readable by its owner only."""
    if given := os.environ.get(VARIABLE):
        return given.encode()
    path = folder / FILE
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, prefix=FILE) as made:  # readable by its owner only
            made.write(secrets.token_hex(16).encode())
            made.flush()
            with contextlib.suppress(FileExistsError):  # another grader was first
                os.link(made.name, path)
    return path.read_bytes()


def case_seed(master: bytes, exercise: str, index: int) -> int:
    """The seed of the ``index``-th draw of an exercise's secret cases: the same for every student of a class."""
    digest = hmac.new(master, f"{exercise}/{index}".encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def fingerprint(master: bytes) -> str:
    """Tells two master seeds apart without telling either."""
    return hmac.new(master, b"fingerprint", hashlib.sha256).hexdigest()[:16]
