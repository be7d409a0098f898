"""What this machine can judge, and how its versions compare with the pins: one table, one block to paste."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass

import flashkit

PINS = {"torch": "2.13.0", "triton": "3.7.1", "numpy": "2.4.6"}  # the pair constraints.txt installs; a test compares
BF16 = "the interpreter computes bf16 wrongly"
OLDEST_GPU = (8, 0)  # Ampere: the oldest architecture the compile gate and the labs' timings support


@dataclass(frozen=True)
class Capability:
    """One thing a check may be asked to judge.

    `judged` says whether this machine can; `how` names the judge, or, where there is none, what it would take.
    """

    name: str
    what: str
    judged: bool
    how: str


@dataclass(frozen=True)
class Machine:
    """What the table depends on. `triton` is None where there is no wheel; `arch` is (major, minor) or None."""

    system: str
    triton: str | None
    gpu: str | None
    arch: tuple[int, int] | None


def machine() -> Machine:
    """Looks at this machine. Never raises: a broken driver reads as no GPU."""
    gpu, arch = None, None
    try:
        import torch

        if torch.cuda.is_available():
            gpu, arch = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    except (ImportError, RuntimeError, AssertionError):
        pass
    return Machine(platform.system(), version_of("triton"), gpu, arch)


def version_of(package: str) -> str | None:
    """Installed version of a package, read from its metadata without importing it; None when absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def capabilities(on: Machine | None = None) -> dict[str, Capability]:
    """The capability table, by name. `on` is the machine to describe; this one when left out.

    Names: `answers`, `traffic`, `compile`, `bf16`, `time`, `hopper`. A thing that is not judged is never a pass.
    """
    on = on or machine()
    kernels, gpu = on.triton is not None, on.arch is not None and on.arch >= OLDEST_GPU
    no_triton = "needs Triton, which has wheels for Linux only (README, Where it runs)"
    no_gpu = "needs an NVIDIA GPU, Ampere (sm_80) or newer"
    judge = f"the interpreter, then {on.gpu}" if gpu else "Triton's interpreter on the CPU"
    hopper = gpu and on.arch[0] == 9
    rows = [
        Capability("answers", "fp32, fp16 answers", kernels, judge if kernels else no_triton),
        Capability("traffic", "bytes, bounds, races", kernels, "the meter" if kernels else no_triton),
        Capability("compile", "compiles for a GPU", kernels, f"ptxas for {_target(on)}" if kernels else no_triton),
        Capability("bf16", "bf16 answers", kernels and gpu, on.gpu if gpu else f"needs an NVIDIA GPU; {BF16}"),
        Capability("time", "speed", kernels and gpu, on.gpu if gpu else no_gpu),
        Capability("hopper", "Hopper kernels", kernels and hopper, on.gpu if hopper else "needs a Hopper GPU (sm_90)"),
    ]
    return {row.name: row for row in rows}


def _target(on: Machine) -> str:
    return f"sm_{on.arch[0]}{on.arch[1]}" if on.arch and on.arch >= OLDEST_GPU else "sm_90, with no GPU needed"


def warnings() -> list[str]:
    """Sentences about versions that are known to misbehave together, or that differ from the pins."""
    found = []
    installed = {package: version_of(package) for package in PINS}
    if _release(installed["triton"]) < (3, 7) and _release(installed["numpy"]) >= (2, 4) and installed["triton"]:
        found.append(
            f"triton {installed['triton']} cannot interpret with numpy {installed['numpy']}: pip install 'numpy<2.4'"
        )
    for package, pin in PINS.items():
        version = installed[package]
        if version and version.split("+")[0] != pin:
            found.append(f"{package} {version} is not the pinned {pin}: say so when you report a surprise")
    return found


def _release(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "0").split(".")[:2] if part.isdigit())


def report() -> str:
    """One block to paste into a question or an issue: versions, device, what is judged here and what is not."""
    on = machine()
    table = capabilities(on).values()
    lines = [
        f"flashkit {flashkit.__version__} on Python {platform.python_version()}, "
        f"{on.system} {platform.machine()}, {os.cpu_count()} cores",
        ", ".join(f"{package} {version_of(package) or 'missing'}" for package in PINS),
        f"GPU: {on.gpu}, sm_{on.arch[0]}{on.arch[1]}" if on.gpu else "GPU: none that CUDA can use",
    ]
    wide = 2 + max(len(row.what) for row in table)
    lines += [f"  judged here      {row.what:{wide}}{row.how}" for row in table if row.judged]
    lines += [f"  not judged here  {row.what:{wide}}{row.how}" for row in table if not row.judged]
    lines += [f"  warning          {sentence}" for sentence in warnings()]
    if version_of("jupyterlab"):
        lines.append(f"jupyterlab {version_of('jupyterlab')}, nbgrader {version_of('nbgrader') or 'missing'}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
