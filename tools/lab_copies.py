"""The learner's copies of the labs: made once in work/, never overwritten; says when a release has changed since."""

import hashlib
import json
import shutil
from pathlib import Path

RECORD = ".released.json"  # in work/: sha256 of each released file at the time it was copied


def copy_labs(labs: Path, work: Path) -> list[str]:
    """Copies what work/ lacks of each lab and returns the sentences to show.

    Raises OSError when work/ cannot be written.
    """
    said = []
    work.mkdir(exist_ok=True)
    record = read_record(work)
    for lab in sorted(path for path in labs.glob("*") if path.is_dir()):
        copied, changed = copy_lab(lab, work / lab.name, record)
        if copied:
            said.append(f"work/{lab.name}: your copy of {', '.join(copied)}")
        if changed:
            said.append(
                f"labs/{lab.name} has changed since you copied {', '.join(changed)}. Your copy is as you left it; to "
                f"start from the new release, rename work/{lab.name} and run make lab again."
            )
    (work / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return said


def copy_lab(lab: Path, destination: Path, record: dict) -> tuple[list[str], list[str]]:
    """(files copied now, files whose release differs from what was copied then). Updates the record."""
    copied, changed = [], []
    for source in sorted(path for path in lab.rglob("*") if path.is_file() and ".ipynb_checkpoints" not in path.parts):
        name = source.relative_to(lab)
        key, digest = f"{lab.name}/{name.as_posix()}", sha256(source)
        if not (destination / name).exists():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, destination / name)
            record[key] = digest
            copied.append(name.as_posix())
        elif record.setdefault(key, digest) != digest:
            changed.append(name.as_posix())
    return copied, changed


def read_record(work: Path) -> dict:
    """What was copied when; empty when the file is lost or not ours, which costs the notice and nothing else."""
    try:
        record = json.loads((work / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
