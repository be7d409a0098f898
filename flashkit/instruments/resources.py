"""What a kernel costs on six GPU architectures: registers, spills, shared memory, matrix instructions, occupancy.

The real compilers (Triton's or NVRTC, then ptxas) answer in clean child processes, with no GPU; answers are kept on
disk by content, so that the second question about the same kernel costs nothing.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import triton

from flashkit.instruments import compile_gate, cuda_gate, listing, stalls
from flashkit.instruments.hooks import describe_launch
from flashkit.instruments.listing import Listing, Mix
from flashkit.instruments.record import Launch
from reference.occupancy import Occupancy, occupancy

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
AT_ONCE = max(1, min(4, os.cpu_count() or 1))
SECONDS = 120
Question = tuple[str, int, str, Callable[[], compile_gate.Pending]]  # kernel, architecture, cache key, what asks
SYSTEM_SHARED = 1024  # bytes a block that the system keeps; compilers for sm_90 and newer count them as the text's


@dataclass(frozen=True)
class Resources:
    """What one architecture's compiler made of a kernel.

    kind       "ok", or why there is nothing: "refused", "crashed", "timeout", "unavailable" (see CompileResult)
    registers, spills   32-bit registers, and bytes of local memory, a thread
    shared, static_shared   bytes of shared memory a block in all, and the part of it that the text declares
    threads    a block's
    listing    what the code is made of
    message, where, lineno, line   what the compiler said, and the student's line
    """

    kernel: str
    arch: int
    kind: str
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    static_shared: int | None = None
    threads: int | None = None
    listing: Listing | None = field(default=None, repr=False)
    message: str = ""
    where: str = ""
    lineno: int = 0
    line: str = ""

    @property
    def ok(self) -> bool:
        return self.kind == "ok"

    @property
    def occupancy(self) -> Occupancy | None:
        """Blocks an SM, and what binds; None when the kernel was not compiled."""
        if self.registers is None or self.shared is None or not self.threads:
            return None
        return occupancy(self.arch, -(-self.threads // 32), self.registers, self.shared)

    @property
    def matrix(self) -> str:
        """The matrix instructions used: "mma.sync", "wgmma", "tcgen05" or "none"."""
        found = [kind for kind in ("mma.sync", "wgmma", "tcgen05") if self.listing and self.listing.whole.kinds[kind]]
        return " + ".join(found) or "none"

    @property
    def copies(self) -> str:
        """How tiles come to shared memory: "TMA", "cp.async" or "loads"."""
        found = [kind for kind in ("TMA", "cp.async") if self.listing and self.listing.whole.kinds[kind]]
        return " + ".join(found) or "loads"

    @property
    def load_bytes(self) -> int:
        """Width in bytes a thread of the widest load from global memory; 16 is the most. 0 where TMA does it all."""
        return max(self.listing.whole.loads, default=0) if self.listing else 0

    def __str__(self) -> str:
        return str(Table([self]))


HEADS = ("GPU", "registers", "spills", "shared", "blocks/SM", "binds", "matrix", "copies", "load")


class Table(list[Resources]):
    """Resources of one kernel, one architecture a row; prints as text and, in a notebook, as a table."""

    def cells(self) -> list[tuple[str, ...]]:
        return [_cells(row) for row in self]

    @property
    def complaints(self) -> list[str]:
        """One line for each different thing that a compiler said, with the student's line under it."""
        told = {}
        for row in self:
            if not row.ok:
                place = f"\n    {row.where}, line {row.lineno}: {row.line.strip()}" if row.lineno else ""
                told.setdefault((row.message, place), []).append(f"sm_{row.arch}")
        return [f"{', '.join(archs)}: {message}{place}" for (message, place), archs in told.items()]

    def __str__(self) -> str:
        rows = [HEADS, *self.cells()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *self.complaints])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        name = html.escape(self[0].kernel) if self else ""
        head = "".join(f'<th scope="col">{text}</th>' for text in HEADS)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in self.cells())
        told = "".join(f"<pre>{html.escape(complaint)}</pre>" for complaint in self.complaints)
        return f"<table><caption>{name}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{told}"


def _cells(row: Resources) -> tuple[str, ...]:
    held = row.occupancy
    if held is None:
        return (f"sm_{row.arch}", row.kind, *("" for _ in HEADS[2:]))
    spills = f"{row.spills} B" if row.spills else "none"
    figures = (str(row.registers), spills, f"{row.shared / 1024:g} KiB", str(held.blocks), ", ".join(held.binds))
    return (f"sm_{row.arch}", *figures, row.matrix, row.copies, f"{row.load_bytes} B")


def resources(kernel: Any, *args: Any, archs: Iterable[int] = ARCHITECTURES, **kwargs: Any) -> Table:
    """Compiles a Triton or Gluon kernel for each architecture of ``archs`` (90 is sm_90).

    kernel   as it stands in the notebook, interpreted or not, or a :class:`Launch` that was recorded (kwargs are then
             other options for it)
    args, kwargs   what a launch would be given: tensors (on the device "meta" they take no memory), numbers, constants,
             num_warps, num_stages
    Nothing is raised for a kernel that does not compile: the row says what the compiler said, and of which line.
    """
    if isinstance(kernel, Launch):
        launch = replace(kernel, options=kernel.options | kwargs)
    else:
        launch = describe_launch(_under_autotune(kernel), args, kwargs)
    return Table(each((launch, arch) for arch in archs))


def each(asked: Iterable[tuple[Launch, int]]) -> Iterator[Resources]:
    """A row for each launch and its architecture, in order; the next ones compile meanwhile."""

    def question(launch: Launch, arch: int) -> Question:
        start = lambda: compile_gate.start(launch, arch, True, laid_out=True)  # noqa: E731
        return launch.name, arch, _key(compile_gate.describe(launch, arch)), start

    return _answers([question(launch, arch) for launch, arch in asked])


def cuda_resources(text: str, kernel: str, threads: int, archs: Iterable[int] = ARCHITECTURES) -> Table:
    """The same for a kernel of CUDA C++ ``text`` (NVRTC) that is launched with ``threads`` threads a block."""

    def question(arch: int) -> Question:
        name = f"{arch}a" if arch >= 90 else str(arch)
        start = lambda: cuda_gate.start(text, kernel, name, listing=True)  # noqa: E731
        return kernel, arch, _key({"text": text, "kernel": kernel, "arch": name}, cuda_gate.CHILD), start

    rows = _answers([question(arch) for arch in archs])
    return Table(replace(row, threads=threads, shared=row.static_shared) for row in rows)


def _under_autotune(kernel: Any) -> Any:
    """The kernel itself: an autotuner or a heuristic only chooses arguments."""
    while type(kernel).__module__ == "triton.runtime.autotuner":
        kernel = kernel.fn
    return kernel


def _answers(questions: Sequence[Question]) -> Iterator[Resources]:
    """Rows in the order of the questions; at most AT_ONCE compilers run at a time."""
    waiting: list[Any] = []
    for number, (kernel, arch, key, _) in enumerate(questions):
        ahead = questions[number : number + AT_ONCE]
        waiting += [_read(later_key) or start() for _, _, later_key, start in ahead[len(waiting) :]]
        known = waiting.pop(0)
        if isinstance(known, compile_gate.Pending):
            known = of(known.result(SECONDS), kernel, arch)
            if known.kind in ("ok", "refused", "crashed"):
                _write(key, known)
        yield known


def of(result: compile_gate.CompileResult, kernel: str, arch: int) -> Resources:
    """The row of an answer that a compiler has given; one asked for with ``listing`` can be predicted from."""
    same = {f.name: getattr(result, f.name) for f in fields(Resources) if f.name not in ("kernel", "arch")}
    if same["static_shared"] and arch >= 90:
        same["static_shared"] -= SYSTEM_SHARED
    return Resources(kernel, arch, **same)


# ---- the cache --------------------------------------------------------------------------------------------


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flashkit" / "resources"


def _key(question: dict[str, Any], child: Path = compile_gate.CHILD) -> str:
    """A name for everything that the answer depends on, what compiles and what reads the code too."""
    known = [triton.__version__, *(Path(file).read_text() for file in (child, listing.__file__, stalls.__file__))]
    if "request" in question:
        question = question | {"request": {k: v for k, v in question["request"].items() if k != "paths"}}
    return hashlib.sha256(json.dumps([known, question], sort_keys=True, default=str).encode()).hexdigest()


def _read(key: str) -> Resources | None:
    try:
        kept = json.loads((_folder() / f"{key}.json").read_text())
        if made_of := kept.pop("listing"):
            whole, *loops = (_mix(mix) for mix in (made_of["whole"], *made_of["loops"]))
            kept["listing"] = Listing(whole, loops, made_of["scheduled"])
        return Resources(**kept)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _mix(kept: dict[str, Any]) -> Mix:
    return Mix(**kept | {"loads": {int(width): count for width, count in kept["loads"].items()}})


def _write(key: str, row: Resources) -> None:
    """Keeps an answer; a disk that cannot is no reason to fail."""
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        path = _folder() / f"{key}.json"
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(asdict(row)))
        scratch.replace(path)
    except OSError:
        pass
