"""check() as a learner with a GPU calls it: ``python -m tests.gpu.check_here``; exit status 1 if a verdict is off."""

from __future__ import annotations

import sys
import time

import flashkit  # noqa: F401  first, as in every notebook
from flashkit.check import check
from tests.labs.kernels import load
from tests.labs.mutants_03 import MUTANTS


def main() -> int:
    wrong = next(m for m in MUTANTS if m.fault == "rescale-numerator-only" and m.base == "solution")
    expected = [("03.rows", (), "right", ""), (wrong.exercise, wrong.patch, "wrong", wrong.fault)]
    off = 0
    for id, patch, verdict, mistake in expected:
        started = time.perf_counter()
        report = check(id, load(id, "solution", patch))
        print(f"{report}\n  took {time.perf_counter() - started:.1f} s")
        off += (report.verdict, report.mistake) != (verdict, mistake)
    return off


if __name__ == "__main__":
    sys.exit(main())
