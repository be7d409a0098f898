"""What student code prints: shown as usual, kept for the report, cut where it would flood the notebook."""

from __future__ import annotations

import contextlib
import io
import sys

LIMIT = 20_000  # characters


class CappedOutput(io.TextIOBase):
    """Passes text on to a stream until LIMIT characters, then drops it and says so once."""

    def __init__(self, stream):
        self.stream, self.kept, self.size, self.cut = stream, [], 0, False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = LIMIT - self.size
        if room > 0:
            self._show(text[:room])
        if len(text) > room and not self.cut:
            self.cut = True
            self._show(f"\n[output cut after {LIMIT:,} characters]\n")
        self.size += len(text)
        return len(text)

    def _show(self, text: str) -> None:
        self.kept.append(text)
        if self.stream is not None:
            self.stream.write(text)

    def flush(self) -> None:
        if self.stream is not None:
            self.stream.flush()

    @property
    def text(self) -> str:
        return "".join(self.kept)


@contextlib.contextmanager
def capture(show: bool = True):
    """Cap stdout and stderr of the block; yields the CappedOutput that holds what was printed."""
    output = CappedOutput(sys.stdout if show else None)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output
