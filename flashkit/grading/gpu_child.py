"""In the GPU's sandbox: runs a submission's cells, then judges one kernel compiled, then its time.

``python -m flashkit.grading.gpu_child FOLDER``. FOLDER holds request.json (id, function, cells, seconds, arch, gpu);
answer.json is left there: what :class:`flashkit.check.timing.TimeReport` takes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import torch

from flashkit.check import child
from flashkit.check.cost import Target
from flashkit.runtime.capture import capture
from flashkit.runtime.deadline import deadline
from flashkit.runtime.server import check_nothing

NO_FUNCTION = "there is no function `{name}` in what was handed in"
NO_GPU = "the sandbox sees no GPU"


def main(folder: str) -> None:
    request = json.loads((Path(folder) / "request.json").read_text())
    answer = answered(Path(folder), request) if torch.cuda.is_available() else {"why": NO_GPU}
    (Path(folder) / "answer.json").write_text(json.dumps(answer))


def answered(folder: Path, request: dict) -> dict:
    """What answer.json holds: points, told and why, as far as they are known."""
    check_nothing()
    function = run_cells(folder, request["cells"], request["seconds"]).get(request["function"])
    if not callable(function):
        return {"told": NO_FUNCTION.format(name=request["function"])}
    return judged(request["id"], function, Target(request["arch"], request["gpu"]))


def run_cells(folder: Path, cells: list, seconds: float) -> dict:
    """Runs the cells one by one from real files, since Triton reads sources; one that fails is passed over."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for number, (name, source) in enumerate(cells):
        path = folder / f"{number} {name}.py"
        path.write_text(source, encoding="utf-8")
        with contextlib.suppress(Exception), capture(False), deadline(seconds):
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def judged(id: str, function: Callable, target: Target) -> dict:
    """Only what is right on the public cases is timed."""
    answers = child.compiled(id, function, target)
    return child.timed(id, function, target) if answers["right"] else {"told": answers["sentence"].rstrip(".")}


if __name__ == "__main__":
    main(*sys.argv[1:])
