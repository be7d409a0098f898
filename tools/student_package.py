"""Packs what a teacher hands out: the committed course without solutions/, tests/ and the teacher's files.

``python -m tools.student_package 03`` leaves out the labs after 03: a later lab gives what an earlier one asks for.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dist" / "flashkit-students.zip"
HANDED_OUT = (
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "environment.yml",
    "benchmarks/results/prediction-h200.json",  # chapter 06 reads it
    "flashkit/",
    "labs/",
    "notebooks/",
    "reference/",
    "tools/",
)
KEPT = ("flashkit/grading/",)
MOMENT = (2020, 1, 1, 0, 0, 0)  # fixed, so that the same commit gives the same bytes


def main(last: str = "99") -> int:
    if not last.isdecimal() or len(last) > 2:
        print(f"student-package: LAST must be a lab's number, such as 06, not {last!r}.", file=sys.stderr)
        return 1
    names = [name for name in handed_out(committed(ROOT)) if not is_later(name, last.zfill(2))]
    PACKAGE.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(PACKAGE, "w", zipfile.ZIP_DEFLATED) as package:
        for name in names:
            entry = zipfile.ZipInfo(f"flashkit-course/{name}", MOMENT)
            entry.external_attr = (ROOT / name).stat().st_mode << 16
            package.writestr(entry, (ROOT / name).read_bytes(), zipfile.ZIP_DEFLATED)
    print(f"student-package: {len(names)} files in {PACKAGE.relative_to(ROOT)}")
    return 0


def committed(root: Path) -> list[str]:
    """Names of the files git tracks: what a teacher happens to have lying about stays there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.split("\0") if name)


def handed_out(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(HANDED_OUT) and not name.startswith(KEPT)]


def is_later(name: str, last: str) -> bool:
    """Is this file of a lab after the one numbered ``last``?"""
    folder, _, rest = name.partition("/")
    return folder == "labs" and rest[:2] > last[:2]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
