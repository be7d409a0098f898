"""Does a real GPU's compiler take this kernel? Asked of Triton and ptxas in a clean child process; no GPU needed.

A launch that the meter saw is enough: its source is collected, its arguments become a compile signature. The gate
answers about acceptance; register counts are a by-product. A child that hangs or dies is an answer too.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flashkit.instruments.listing import Listing, read
from flashkit.instruments.record import Argument, Launch
from flashkit.runtime.source import Line, Source, SourceError, collect

ARCH = 90  # Hopper, when there is no GPU whose architecture could be asked
STAGES = 3  # what Triton takes where a launch names none
CPU_SECONDS = 60  # the child ends itself after that much, even when nobody waits for it any more
CHILD = Path(__file__).with_name("compile_child.py")
OPTIONS = {  # launch keywords that Triton's CUDA backend takes beside the kernel's own parameters
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "ptx_options", "ir_override", "enable_fp_fusion"),
    *("launch_cooperative_grid", "launch_pdl", "minRegAutoWS", "maxRegAutoWS", "supported_fp8_dtypes"),
    *("default_dot_input_precision", "allowed_dot_input_precisions", "max_num_imprecise_acc_default"),
    *("extern_libs", "debug", "backend_name", "sanitize_overflow", "arch", "instrumentation_mode", "warp_size"),
    *("deprecated_fp8_dot_operand_dtypes", "enable_reflect_ftz", "cluster_dims"),
}


@dataclass(frozen=True)
class CompileResult:
    """What the compiler made of one kernel.

    kind       "ok"; "refused" (an error in the kernel); "crashed" (the compiler itself died);
               "timeout"; "unavailable" (could not be tried, which is not the student's fault)
    error      type of the exception, "" when ok
    message    what the compiler said, unedited
    source     what was compiled
    where, lineno, line   the student's line, "" and 0 when none is known
    registers  a thread, spills: bytes of local memory a thread, shared: bytes a block; None when not known
    static_shared  of CUDA C++, bytes declared in the text; threads a block; both None when not known
    listing    what the kernel's PTX is made of, when it was asked for
    roles      (warps, registers a thread that it asks for) of each worker of a warp-specialised kernel
    in_flight  the most matrix products that a wait leaves running
    stages     that the launch asked for
    seconds    of compilation alone (ok) or of the whole child
    """

    kernel: str
    kind: str
    seconds: float = 0.0
    arch: int = ARCH
    error: str = ""
    message: str = ""
    where: str = ""
    lineno: int = 0
    line: str = ""
    traceback: str = field(default="", repr=False)
    source: Source | None = field(default=None, repr=False)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    static_shared: int | None = None
    threads: int | None = None
    listing: Listing | None = field(default=None, repr=False)
    roles: Sequence[Sequence[int]] = ()
    in_flight: int = 0
    stages: int = STAGES

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


def start(launch: Launch, arch: int = ARCH, listing: bool = False, laid_out: bool = False) -> Pending:
    """Starts compiling a launch's kernel for ``arch`` (90 is sm_90); returns at once and raises nothing.

    ``listing`` asks for what the kernel is made of too; ``laid_out`` for how long ptxas lets its main loop wait, which
    takes the disassembler a third of a second more.
    """
    try:
        source, request = _prepare(launch, arch)
        request |= {"listing": listing, "laid_out": laid_out}
        return Pending(launch.name, arch, source, request)
    except _Refused as refusal:
        return Pending.answered(refusal.result(launch.name, arch))
    except Exception as error:  # a source that cannot be collected, a full disk, no more processes
        kind = type(error).__name__
        return Pending.answered(CompileResult(launch.name, "unavailable", arch=arch, error=kind, message=str(error)))


def describe(launch: Launch, arch: int = ARCH) -> dict[str, Any]:
    """What :func:`start` would compile, as plain data, for a process that compiles it elsewhere.

    Holds ``name`` and either ``source`` (text, name, lines, packages) and ``request``, or ``kind``, ``error`` and
    ``message`` of an answer that is known already.
    """
    try:
        source, request = _prepare(launch, arch)
    except _Refused as refusal:
        return {"name": launch.name, "kind": "refused", "error": refusal.error, "message": str(refusal)}
    except (SourceError, OSError) as error:
        return {"name": launch.name, "kind": "unavailable", "error": type(error).__name__, "message": str(error)}
    lines = [None if line is None else [line.where, line.lineno, line.text] for line in source.lines]
    described = {"text": source.text, "name": source.name, "lines": lines, "packages": list(source.packages)}
    return {"name": launch.name, "source": described, "request": request}


def distinct(launches: Iterable[Launch]) -> list[Launch]:
    """One launch for each kernel and compile signature, in order; alignment alone makes no difference."""
    found: dict[str, Launch] = {}
    for launch in launches:
        if launch.arguments:  # empty: the launch itself failed
            arguments = {name: (a.type, repr(a.value)) for name, a in launch.arguments.items() if _is_compiled_in(a)}
            types = {name: "i32" if _is_one(a) else a.type for name, a in launch.arguments.items()}
            found.setdefault(repr((id(launch.kernel), arguments, types, launch.options)), launch)
    return list(found.values())


class Pending:
    """A compilation on its way. Ask :meth:`result` once or often; a forgotten one ends by its own CPU limit."""

    def __init__(self, kernel: str, arch: int, source: Source, request: dict[str, Any]):
        self._kernel, self._arch, self._source = kernel, arch, source
        self._started, self._listing = time.monotonic(), bool(request.get("listing"))
        self._stages = int(request.get("options", {}).get("num_stages", STAGES))
        self._result: CompileResult | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="flashkit-compile-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        (folder / "module.py").write_text(source.text)
        (folder / "request.json").write_text(json.dumps(request))
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            self._child = subprocess.Popen(
                self.command(folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=_environment(folder),
                start_new_session=True,  # so that ptxas ends with it
            )

    def command(self, folder: Path) -> list[str]:
        """How the child is started; grading, which does not trust the source, starts it in a sandbox."""
        return [sys.executable, "-I", str(CHILD), str(folder)]

    @classmethod
    def answered(cls, result: CompileResult) -> Pending:
        """A Pending whose answer was known without a child."""
        pending = cls.__new__(cls)
        pending._result = result
        return pending

    def result(self, timeout: float = 30.0) -> CompileResult:
        """Waits until the child ends, at most ``timeout`` seconds from now, and says what came of it."""
        if self._result is None:
            try:
                self._child.wait(timeout)
                self._result = self._read()
            except subprocess.TimeoutExpired:
                self._result = self._stopped("timeout", f"The compiler did not finish within {timeout:g} s.")
            self._end()
        return self._result

    def cancel(self) -> None:
        """Ends the child; the result then says "unavailable"."""
        if self._result is None:
            self._result = self._stopped("unavailable", "The compilation was cancelled.")
            self._end()

    def _end(self) -> None:
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._child.wait()
        self._folder.cleanup()

    def _stopped(self, kind: str, message: str) -> CompileResult:
        seconds = time.monotonic() - self._started
        return CompileResult(self._kernel, kind, seconds, self._arch, message=message)

    def _read(self) -> CompileResult:
        folder = Path(self._folder.name)
        noise = (folder / "stderr").read_text(errors="replace")[:20_000]  # the complaint first, then dumps
        try:
            answer = dict(json.loads((folder / "stdout").read_text()))
        except (ValueError, TypeError):  # no answer, or only half of one
            return self._died(noise)
        answer.setdefault("seconds", time.monotonic() - self._started)
        ok, lineno = answer.pop("ok"), answer.pop("lineno", 0)
        result = CompileResult(self._kernel, "ok" if ok else "refused", arch=self._arch, stages=self._stages, **answer)
        if self._listing and (folder / "kernel.ptx").exists():
            sass = folder / "kernel.sass"
            laid_out = sass.read_text(errors="replace") if sass.exists() else ""
            result = replace(result, listing=read((folder / "kernel.ptx").read_text(), laid_out, self._source.name))
        if ok:
            return result
        if _is_machine_trouble(result):
            return replace(result, kind="unavailable")
        if "PassManager::run failed" in result.message or result.error == "PTXASError":
            result = replace(result, kind="crashed", traceback=f"{noise}\n{result.traceback}".strip())
            lineno = lineno or _line_in(noise)
        return self._at(result, lineno)

    def _died(self, noise: str) -> CompileResult:
        code = self._child.returncode
        if -code in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL):
            return self._stopped("timeout", f"The compiler was stopped: over {CPU_SECONDS} s, or out of memory.")
        if code >= 0:  # Python itself failed before it could answer
            return self._stopped("unavailable", f"The compiler could not be started: {_last(noise)}")
        result = self._stopped("crashed", f"The compiler crashed ({signal.Signals(-code).name}): {_said(noise)}")
        return self._at(replace(result, error="CompilerCrash", traceback=noise.strip()), _line_in(noise))

    def _at(self, result: CompileResult, lineno: int) -> CompileResult:
        line = self._source.locate(lineno) or Line("", 0, "")
        return replace(result, where=line.where, lineno=line.lineno, line=line.text, source=self._source)


class _Refused(Exception):
    """Known without compiling that no compiler takes this launch."""

    def __init__(self, error: str, message: str):
        super().__init__(message)
        self.error = error

    def result(self, kernel: str, arch: int) -> CompileResult:
        return CompileResult(kernel, "refused", arch=arch, error=self.error, message=str(self))


def _prepare(launch: Launch, arch: int) -> tuple[Source, dict[str, Any]]:
    for name, argument in launch.arguments.items():
        if argument.type is None:
            raise _Refused("TypeError", f"Parameter `{name}` of `{launch.name}` was given a value that has no type.")
        if isinstance(argument.type, tuple):
            raise SourceError(f"Parameter `{name}` is a tuple, which is compiled on a GPU only.")
    for name in launch.options:
        if name not in OPTIONS:
            message = f"Keyword argument {name} was specified but unrecognised"
            raise _Refused("KeyError", message)
    constants = {name: a.value for name, a in launch.arguments.items() if _is_compiled_in(a)}
    source = collect(launch.kernel, constants)
    request = {
        "kernel": source.name,
        "types": {name: a.type for name, a in launch.arguments.items()},
        "aligned": [name for name, a in launch.arguments.items() if a.aligned and not _is_compiled_in(a)],
        "options": {name: value for name, value in launch.options.items() if _is_plain(value)},
        "arch": arch,
        "cpu_seconds": CPU_SECONDS,
        "paths": _folders(source.packages),
        "torch_modules": sorted(_torch_modules(source.text)),
    }
    return source, request


def _is_compiled_in(argument: Argument) -> bool:
    return argument.type == "constexpr"


def _is_one(argument: Argument) -> bool:
    return _is_compiled_in(argument) and type(argument.value) is int and argument.value == 1


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _folders(packages: Iterable[str]) -> list[str]:
    """Where the parent found these packages: the child, which is isolated, looks there first."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in packages]
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in files if file))


def _torch_modules(text: str) -> set[str]:
    """The torch modules that the text imports, with their parents."""
    names = re.findall(r"^(?:import|from) (torch(?:\.\w+)*)", text, re.MULTILINE)
    return {name.rsplit(".", depth)[0] for name in names for depth in range(name.count(".") + 1)}


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k in ("PATH", "LD_LIBRARY_PATH", "TRITON_PTXAS_PATH") if (v := os.environ.get(k))}
    return {**kept, "HOME": str(folder), "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}


def _is_machine_trouble(result: CompileResult) -> bool:
    """The compiler could not do its work here: no room, no memory, no working ptxas, no triton."""
    return result.error in ("OSError", "MemoryError", "PermissionError", "ImportError", "ModuleNotFoundError")


def _line_in(noise: str) -> int:
    """The first line of module.py that MLIR or ptxas complains about."""
    found = re.search(r'module\.py"?:(\d+)', noise)
    return int(found[1]) if found else 0


def _last(noise: str) -> str:
    lines = noise.strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _said(noise: str) -> str:
    found = re.search(r".*(?:Assertion .* failed|LLVM ERROR.*|error: .*)", noise)
    return found[0].strip()[:300] if found else _last(noise)
