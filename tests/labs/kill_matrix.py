"""The proof that the checks can be trusted, as a table: ``python -m tests.labs.kill_matrix`` (``make kill-matrix``).

Every planted fault must be caught and named, every pair of faults caught and not misnamed, every correct but unusual
kernel pass with nothing named. Ends with one line of counts; exits 1 if that line is not good enough. Arguments, such
as ``03.heads`` or ``03``, leave only the exercises and labs that they name.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes on two cores

import flashkit  # noqa: F401  comes before triton
from tests.labs.correct_variants import NAMES, exercise_of
from tests.labs.judging import Judgement, is_misnamed, is_named, judge, judge_mutant

LABS = [
    importlib.import_module(f"tests.labs.{path.stem}") for path in sorted(Path(__file__).parent.glob("mutants_*.py"))
]
SINGLE = tuple(m for lab in LABS for m in lab.MUTANTS)
TWO_FAULTS = tuple(m for lab in LABS for m in getattr(lab, "TWO_FAULTS", ()))
EQUIVALENT = tuple(m for lab in LABS for m in getattr(lab, "EQUIVALENT", ()))
PROCESSES = 2
UNNAMED_SHARE = 0.05


def main(*only: str) -> int:
    started = time.perf_counter()
    planted = [m for m in SINGLE + TWO_FAULTS + EQUIVALENT if is_asked(m.exercise, only)]
    names = [name for name in NAMES if is_asked(exercise_of(name), only)]
    if not planted:
        known = ", ".join(sorted({mutant.exercise for mutant in SINGLE}))
        print(f"kill matrix: no mutant of {' '.join(only)}; there are {known}.", file=sys.stderr)
        return 2
    print(f"judging {len(planted)} mutants and {len(names)} variants: minutes", flush=True)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        correct = pool.map_async(_judge_variant, names, chunksize=1)
        judged = dict(zip(planted, pool.map(judge_mutant, planted, chunksize=1), strict=True))
        variants = dict(zip(names, correct.get(), strict=True))
    accused = [*_show_mutants(judged), *_show_variants(variants)]
    print(f"\n{time.perf_counter() - started:.0f} s")
    line, good = summary(judged, variants)
    print(line)
    return 0 if good and not accused else 1


def is_asked(exercise: str, only: tuple[str, ...]) -> bool:
    return not only or any(exercise == name or exercise.startswith(f"{name}.") for name in only)


def summary(judged: dict, variants: dict[str, Judgement]) -> tuple[str, bool]:
    """The line of counts of what was judged, and whether it is good enough."""
    single = [m for m in SINGLE if m in judged]
    planted = [m for m in SINGLE + TWO_FAULTS if m in judged]
    caught = sum(judged[m].caught for m in planted)
    named = sum(is_named(m, judged[m]) for m in single)
    misnamed = sum(is_misnamed(m, judged[m]) for m in planted)
    passed = sum(_passes(j) for j in variants.values())
    good = caught == len(planted) and not misnamed and passed == len(variants)
    excused = sum(bool(m.unnamed) for m in single)  # of all mutants, no more than UNNAMED_SHARE
    good = good and len(single) - named <= max(UNNAMED_SHARE * len(single), excused)
    return (
        f"kill matrix: {caught}/{len(planted)} caught, {named}/{len(single)} named, {misnamed} misnamed, "
        f"{passed}/{len(variants)} correct variants pass"
    ), good


def _judge_variant(name: str) -> Judgement:
    return judge(exercise_of(name), name)


def _passes(judgement: Judgement) -> bool:
    return judgement.verdict == "right" and not judgement.named


def _show_mutants(judged: dict) -> list:
    """Print the tables of mutants; return the equivalent ones that were accused."""
    _row("exercise", "planted fault", "base", "caught by", "named as")
    for mutant in [m for m in SINGLE + TWO_FAULTS if m in judged]:
        j = judged[mutant]
        named = (" and " if j.together else " or ").join(j.named) or ("-" if j.caught else "NOT CAUGHT")
        remark = "  MISNAMED" if is_misnamed(mutant, j) else "" if is_named(mutant, j) else "  (not named)"
        remark = "" if len(mutant.faults) > 1 and not is_misnamed(mutant, j) else remark
        _row(mutant.exercise, mutant.fault, mutant.base, j.caught_by, named + remark)
    print("\nequivalent mutants: they look like a fault and are right")
    equivalent = [m for m in EQUIVALENT if m in judged]
    for mutant in equivalent:
        verdict = judged[mutant].verdict + ("" if _passes(judged[mutant]) else "  ACCUSED")
        print(f"  {mutant.exercise:10} {mutant.fault:25} {verdict:8} {mutant.note}")
    return [m for m in equivalent if not _passes(judged[m])]


def _show_variants(variants: dict[str, Judgement]) -> list[str]:
    print("\ncorrect variants")
    for name, j in variants.items():
        over = f"over budget: {', '.join(j.over_budget)}" if j.over_budget else ""
        print(f"  {name:28} {j.verdict:8} {' or '.join(j.named) or 'nothing named':14} {over}")
    return [name for name, j in variants.items() if not _passes(j)]


def _row(*cells: str) -> None:
    print("{:10} {:48} {:22} {:22} {}".format(*cells), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
