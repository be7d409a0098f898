"""Every candidate of a grid compiled for one GPU architecture, and its time predicted: a table, fastest first."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from flashkit import exercises
from flashkit.check import choices
from flashkit.check.choice_report import progress_line
from flashkit.check.choices import Candidate, Launched, compile_launched, milliseconds, told
from flashkit.exercises.contract import Tuning
from flashkit.instruments.dry_run import launches
from flashkit.instruments.resources import ARCHITECTURES, Resources
from reference.machines import OF_ARCH

HEADS = ("block_q x block_k, warps, stages", "predicted", "registers", "spills", "shared", "blocks/SM")


@dataclass(frozen=True)
class Swept:
    """One candidate: what the compiler made of it, its predicted seconds, or why there are none."""

    candidate: Candidate
    row: Resources
    seconds: float | None
    why: str = ""

    def cells(self) -> tuple[str, ...]:
        row, held = self.row, self.row.occupancy
        time = milliseconds(self.seconds) if self.seconds else "out"
        if held is None:
            return (told(self.candidate), time, row.kind, "", "", "")
        spills = f"{row.spills} B" if row.spills else "none"
        return (
            told(self.candidate),
            time,
            str(row.registers),
            spills,
            f"{row.shared / 1024:.4g} KiB",
            str(held.blocks),
        )


class Sweep(list[Swept]):
    """The candidates, fastest first, and those that are out at the end; prints as text and as a table."""

    def __init__(self, arch: int, rows: Sequence[Swept]):
        super().__init__(sorted(rows, key=lambda row: row.seconds or float("inf")))
        self.title = f"sm_{arch}: predicted for {OF_ARCH[arch].gpu}"

    def __str__(self) -> str:
        rows = [HEADS, *(row.cells() for row in self)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{text}</th>' for text in HEADS)
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row.cells()) for row in self]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        caption = html.escape(self.title)
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def sweep(
    function: Callable, arch: int = 90, candidates: Sequence[Candidate] | None = None, id: str = "05.tuned"
) -> Sweep:
    """Compiles ``function(q, k, v, block_q, block_k, warps, stages)`` for ``arch`` with each candidate; runs nothing.

    ``candidates`` are the grid of exercise ``id`` unless others are given. Raises ValueError for an architecture that
    is not compiled for, and whatever ``function`` raises.
    """
    if arch not in ARCHITECTURES:
        raise ValueError(f"arch must be one of {', '.join(map(str, ARCHITECTURES))}, but is {arch!r}")
    tuning = exercises.get(id).tuning
    chosen = list(candidates or tuning.candidates)
    kernels = [_launched(tuning, function, candidate) for candidate in chosen]
    done: list[Swept] = []
    for candidate, row in zip(chosen, compile_launched([(kernel, arch) for kernel in kernels]), strict=True):
        done.append(_swept(tuning, arch, candidate, row))
        progress_line(len(done), len(chosen), "candidates")
    return Sweep(arch, done)


def _launched(tuning: Tuning, function: Callable, candidate: Candidate) -> Launched:
    """What the function launches for the exercise's large forward; tensors on "meta" take no memory."""
    s = tuning.shape
    heads = [(s.H_q, s.N_q, s.d), (s.H_kv, s.N_k, s.d), (s.H_kv, s.N_k, s.d_v)]
    tensors = [torch.empty((s.B, *shape), dtype=torch.float16, device="meta") for shape in heads]
    found = launches(function, *tensors, *candidate)
    if len(found) != 1:
        raise ValueError(f"sweep() wants a function that launches one kernel, but {len(found)} were launched")
    return Launched(found[0])


def _swept(tuning: Tuning, arch: int, candidate: Candidate, row: Resources) -> Swept:
    why = choices.unfit(row) or choices.unclear(tuning, row, candidate)
    return Swept(candidate, row, None if why else choices.predicted(tuning, arch, candidate, row), why)
