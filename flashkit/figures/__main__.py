"""Command line: `python -m flashkit.figures export NAME [--out FILE]` writes a figure as a stand-alone page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashkit.figures import PICTURES
from flashkit.figures.page import page


def main(arguments: list[str] | None = None) -> int:
    """0, or 2 with one line when the name or the file cannot be."""
    parser = argparse.ArgumentParser(prog="python -m flashkit.figures", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="export")
    export = commands.add_parser("export", help="write a figure as one HTML file that works from the disk")
    export.add_argument("name", metavar="NAME", help="one of: " + ", ".join(PICTURES))
    export.add_argument("--out", metavar="FILE", type=Path, help="default: dist/NAME.html in this folder")
    asked = parser.parse_args(arguments)
    if asked.name not in PICTURES:
        print(f"there is no figure {asked.name!r}; there are: {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    out = asked.out or Path("dist") / f"{asked.name}.html"
    try:
        if not asked.out:
            out.parent.mkdir(exist_ok=True)
        out.write_text(page(PICTURES[asked.name]()), encoding="utf-8")
    except OSError as error:
        print(f"cannot write {out}: {error.strerror}; give another place with --out FILE", file=sys.stderr)
        return 2
    print(f"{out} written: open it in a browser, F makes it fill the screen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
