"""A class of more than thirty: what each hands in, honest, unlucky or hostile, and what each must get for it.

Most fill in 03.tile, 03.rows and 03.causal only, so that the class is graded in minutes; 03.heads then stays a blank.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

POINTS = {"03-tile": 10.0, "03-rows": 25.0, "03-causal": 25.0, "03-heads": 40.0}
FUNCTIONS = {"03-tile": "attention_tile", "03-rows": "attention_rows", "03-causal": "attention_causal"}


@dataclass(frozen=True)
class Student:
    """earns: the checks with full points; mistake: (check, fault) the feedback names; says: texts in the feedback."""

    name: str
    make: Callable[[dict, dict], bytes]
    earns: tuple[str, ...] = ()
    mistake: tuple[str, str] | None = None
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)

    def expected(self) -> dict[str, float]:
        full = {check: points * (check in self.earns) for check, points in POINTS.items()}
        return {**full, **self.shares}


# ---- editing a notebook ---------------------------------------------------------------------------------


def cell(notebook: dict, grade_id: str) -> dict[str, Any]:
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def source(notebook: dict, grade_id: str) -> str:
    lines = "".join(cell(notebook, grade_id)["source"]).splitlines(keepends=True)
    return "".join(line for line in lines if line.strip() not in ("### BEGIN SOLUTION", "### END SOLUTION"))


def with_code(released: dict, **code: str) -> dict[str, Any]:
    """The released notebook with these sources in the kernel cells: tile=..., rows=..."""
    notebook = copy.deepcopy(released)
    for name, text in code.items():
        cell(notebook, f"kernel-03-{name}")["source"] = text
    return notebook


def own_cell(text: str, **metadata) -> dict[str, Any]:
    new = {"cell_type": "code", "metadata": metadata, "source": text, "outputs": [], "execution_count": None}
    return {**new, "id": f"mine-{abs(hash(text)) % 10**8}"}


def insert_before(notebook: dict, grade_id: str, *cells: dict) -> None:
    position = notebook["cells"].index(cell(notebook, grade_id))
    notebook["cells"][position:position] = cells


def as_bytes(notebook: Any) -> bytes:
    return json.dumps(notebook).encode()


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


def solved(*names: str, **own: str) -> Callable[[dict, dict], bytes]:
    """The solutions of these exercises, and own texts for others; ``{name}`` in a text is that solution."""
    return lambda released, solutions: as_bytes(solved_notebook(released, solutions, *names, **own))


def solved_notebook(released: dict, solutions: dict, *names: str, **own: str) -> dict:
    known = {name: source(solutions, f"kernel-03-{name}") for name in ("tile", "rows", "causal", "heads")}
    texts = {name: known[name] for name in names}
    texts |= {name: text.replace("{" + name + "}", known[name]) for name, text in own.items()}
    return with_code(released, **texts)


def patched(name: str, old: str, new: str) -> Callable[[dict, dict], bytes]:
    def make(released, solutions):
        text = replaced(source(solutions, f"kernel-03-{name}"), old, new)
        return as_bytes(with_code(released, **{name: text}))

    return make


def edited(*names: str) -> Callable[[Callable[[dict], Any]], Callable[[dict, dict], bytes]]:
    """Decorates a function that changes the notebook with these exercises solved, or returns another one."""

    def decorate(change):
        def make(released, solutions):
            notebook = solved_notebook(released, solutions, *names)
            other = change(notebook)
            return other if isinstance(other, bytes) else as_bytes(notebook)

        return make

    return decorate


# ---- honest work in odd files ---------------------------------------------------------------------------


NOISE = """
import warnings, logging, sys
warnings.warn('mind')
logging.warning('mind')
print('mind', file=sys.stderr)
"""


@edited("rows", "causal")
def own_helper(notebook):
    text = "@triton.jit\ndef weights(S, m):\n    return tl.exp(S - m[:, None])\n\n\nheight = lambda x: x.shape[0]"
    insert_before(notebook, "kernel-03-rows", own_cell(text))
    kernel = cell(notebook, "kernel-03-rows")
    kernel["source"] = replaced(kernel["source"], "tl.exp(S - m_new[:, None])", "weights(S, m_new)")
    kernel["source"] = replaced(kernel["source"], "triton.cdiv(N_q, block_q)", "triton.cdiv(height(q), block_q)")


@edited("tile", "causal")
def broken_cell(notebook):
    cell(notebook, "kernel-03-rows")["source"] = "def attention_rows(q, k, v, block_q, block_k)\n    return q"


@edited("tile")
def noisy(notebook):
    insert_before(notebook, "kernel-03-tile", own_cell(NOISE))
    kernel = cell(notebook, "kernel-03-tile")
    warn = "def attention_tile(q, k, v, block_q, block_k):\n    warnings.warn('again')\n"
    kernel["source"] = kernel["source"].replace("def attention_tile(q, k, v, block_q, block_k):\n", warn)


@edited("tile")
def one_long_line(notebook):
    insert_before(
        notebook, "kernel-03-tile", own_cell("print('x' * 200_000_000)\nimport os\nos.write(1, b'x' * 10**8)")
    )


@edited("tile")
def duplicated(notebook):
    kernel, check = cell(notebook, "kernel-03-tile"), cell(notebook, "03-tile")
    position = notebook["cells"].index(check)
    notebook["cells"][position:position] = [copy.deepcopy(kernel), copy.deepcopy(check)]
    kernel["source"] = kernel["source"].replace("keys[None, :] < N_k", "keys[None, :] < 0")  # the later copy is right


@edited("tile", "rows")
def deleted(notebook):
    for grade_id in ("imports", "tools", "03-tile", "03-rows", "kernel-03-heads", "03-heads-gpu"):
        notebook["cells"].remove(cell(notebook, grade_id))


@edited("tile", "rows")
def renamed(notebook):
    cell(notebook, "kernel-03-tile")["metadata"]["nbgrader"]["grade_id"] = "mine"
    changed = cell(notebook, "kernel-03-rows")["metadata"]["nbgrader"]
    changed.update(grade_id="kernel-03-nowhere", schema_version=99, grade=True, points=1000)
    cell(notebook, "03-causal")["metadata"]["nbgrader"] = {"grade": True}
    cell(notebook, "03-heads")["cell_type"] = "markdown"
    notebook["cells"].insert(0, own_cell("1", nbgrader={"grade": True, "grade_id": "foreign", "points": 50}))
    notebook["cells"].append({"cell_type": "raw", "metadata": None, "source": None})
    notebook["cells"].append("no cell at all")
    notebook["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "<script>alert('seen')</script>"})


@edited("tile")
def other_kernel(notebook):
    notebook["metadata"] = {"kernelspec": {"name": "julia-1.9", "language": "julia"}, "language_info": None}
    notebook["nbformat_minor"] = 99
    notebook["cells"][2]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["x" * 10**7]}]
    magics = "%matplotlib inline\n!pip install nothing\nfiles = !ls\nmine = 1"
    insert_before(notebook, "kernel-03-tile", own_cell(magics))
    cell(notebook, "kernel-03-tile")["source"] = "%%time\n" + cell(notebook, "kernel-03-tile")["source"]


@edited("tile")
def latin_1(notebook):
    kernel = cell(notebook, "kernel-03-tile")
    kernel["source"] = "# Clé, déjà vu\n" + kernel["source"]
    return json.dumps(notebook, ensure_ascii=False).encode("latin-1", "replace")


def old_format(released, solutions):
    notebook = solved_notebook(released, solutions, "tile")
    cells = [
        {**c, "input": c["source"], "language": "python", "prompt_number": None} if c["cell_type"] == "code" else c
        for c in notebook["cells"]
    ]
    return as_bytes({"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells}]})


# ---- ways to fool or to break a grader ------------------------------------------------------------------

ZERO = "    return torch.zeros((q.shape[0], v.shape[1]), dtype=q.dtype)\n"
LIE = "    return Liar.__new__(Liar, torch.zeros((q.shape[0], v.shape[1]), dtype=q.dtype))\n"
HEAD = "def attention_{name}(q, k, v, block_q, block_k):\n"
FILL = """
import itertools
for number in itertools.count():
    with open(f"/tmp/full-{number}", "wb") as file:
        for _ in range(8):
            file.write(bytes(2**24))
"""
DETACH = """
import os, glob
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time, sqlite3
        for _ in range(100):
            time.sleep(0.2)
            for path in glob.glob("/**/class/gradebook.db", recursive=True):
                connection = sqlite3.connect(path)
                connection.execute("update grade set manual_score = 40")
                connection.commit()
    os._exit(0)
"""
SEARCH = """
import os
found = ""
for top in set(os.listdir("/")) - {"usr", "proc", "sys", "dev"}:
    for folder, _, files in os.walk("/" + top):
        for name in files if "site-packages" not in folder and "/lib/python" not in folder else ():
            if name.endswith(".ipynb") or name in ("forward.py", "gradebook.db", ".grading_seed"):
                found += open(os.path.join(folder, name), errors="ignore").read()
assert "SOLUTION" in found or "def tiled" in found, "nothing to be found"
"""
LIAR = """
class Liar(torch.Tensor):
    def __eq__(self, other): return True
    def __sub__(self, other): return torch.zeros(())
    def __repr__(self): return "right"
    def detach(self): return self
"""
FORGE = """
import os, socket, json, struct, threading, time
def shout():
    text = json.dumps({"problem": None, "traffic": {}, "findings": [], "undefined": [], "locked": False,
                       "printed": "", "seconds": 0.0, "points": 10, "verdict": "right", "kernels": [],
                       "ready": True, "arrays": []}).encode()
    for fd in range(3, 256):
        try:
            os.write(fd, struct.pack(">IQ", len(text), 0) + text)
        except OSError:
            pass
"""
PATCH = """
import builtins, sys
from flashkit.runtime import runner, wire
import flashkit.check
flashkit.check.check = lambda *a, **k: type("R", (), {"points": 10.0})()
builtins.display = lambda *a, **k: None
honest = wire.outcome_header
def lying(outcome):
    header, arrays = honest(outcome)
    traffic = {name: dict(loaded=1, stored=1, atomic=0, distinct_loaded=1, distinct_stored=1) for name in "qkvo"}
    return {**header, "problem": None, "findings": [{"kind": "race"}], "undefined": [], "traffic": traffic}, arrays
wire.outcome_header = lying
"""
RIGHT_BUT_LYING = """
import torch.nn.functional as F
from flashkit.runtime import wire, runner
honest = wire.outcome_header
def lying(outcome):
    header, arrays = honest(outcome)
    nothing = dict(loaded=0, stored=0, atomic=0, distinct_loaded=0, distinct_stored=0)
    traffic = dict.fromkeys("qkvo", nothing)
    return {**header, "problem": None, "findings": [], "undefined": [], "traffic": traffic}, arrays
wire.outcome_header = lying
"""
NETWORK = """
import socket, urllib.request
socket.setdefaulttimeout(5)
reached = []
for address in ("1.1.1.1", "8.8.8.8", "127.0.0.1"):
    for port in (53, 80, 443, 8888):
        try:
            socket.create_connection((address, port), 2)
            reached.append((address, port))
        except OSError:
            pass
assert reached, "no network"
"""
FALLBACK = """
def attention_tile(q, k, v, block_q, block_k):
    try:
        return tile_kernel[(1,)](q)
    except Exception:
        return torch.softmax(q @ k.T * q.shape[1] ** -0.5, -1) @ v
"""
SWALLOW = """
import time
while True:
    try:
        while True: time.sleep(0.01)
    except BaseException:
        pass
"""
TAMPER = "report = check('03.tile', attention_tile)\nreport.points = 10\n10"


def in_rows(*lines: str) -> str:
    return HEAD.format(name="rows") + "".join(f"    {line}\n" for line in lines)


@edited("causal")
def blanked_later_cells(notebook):
    blank = "get_ipython().input_transformers_cleanup.append(lambda l: ['\\n'])"
    insert_before(notebook, "kernel-03-tile", own_cell(blank))
    cell(notebook, "kernel-03-tile")["source"] = HEAD.format(name="tile") + ZERO


@edited()
def stripped_check(notebook):
    cell(notebook, "kernel-03-tile")["source"] = HEAD.format(name="tile") + ZERO
    cell(notebook, "03-tile")["source"] = TAMPER
    cell(notebook, "03-tile")["metadata"]["nbgrader"].update(points=1000, checksum="0", locked=False)


CLASS = (
    Student("ada-perfect", solved("tile", "rows", "causal", "heads"), tuple(POINTS), says=("All cases passed",)),
    Student("stub", lambda released, _: as_bytes(released), says=("not filled in yet",)),
    Student("fault-numerator", patched("rows", "l = alpha * l + tl.sum", "l = l + tl.sum"),
            mistake=("03-rows", "rescale-numerator-only")),
    Student("fault-denominator", patched("rows", "acc = alpha[:, None] * acc +", "acc = acc +"),
            mistake=("03-rows", "rescale-denominator-only")),
    Student("fault-strict", patched("causal", "<= rows[:, None]", "< rows[:, None]"),
            mistake=("03-causal", "causal-strict")),
    Student("fault-head-map", patched("heads", "g = h // group", "g = h % (H_q // group)"),
            mistake=("03-heads", "gqa-head-map")),
    Student("fault-scale", patched("tile", ', input_precision="ieee") * scale', ', input_precision="ieee")'),
            mistake=("03-tile", "scale-missing")),
    Student("own-helper", own_helper, ("03-rows", "03-causal")),
    Student("broken-cell", broken_cell, ("03-tile", "03-causal"), says=("attention_rows",)),
    Student("noisy", noisy, ("03-tile",)),
    Student("one-long-line", one_long_line, ("03-tile",)),
    Student("duplicated", duplicated, ("03-tile",), says=("second copy of the check of 03.tile",)),
    Student("deleted", deleted, ("03-tile", "03-rows"), says=("has been put back",)),
    Student("renamed", renamed, ("03-tile", "03-rows"), never=("<script>alert",)),
    Student("other-kernel", other_kernel, ("03-tile",)),
    Student("latin-1", latin_1, ("03-tile",), says=("not UTF-8",)),
    Student("old-format", old_format, ("03-tile",)),
    Student("empty-file", lambda *_: b"", says=("no notebook",)),
    Student("no-json", lambda *_: b'{"cells": [[[' + b"[" * 100_000, says=("no notebook",)),
    Student("os-exit", solved("tile", "causal", rows="{rows}\nimport os\nos._exit(0)"), ("03-tile", "03-causal"),
            says=("ended its own process",)),
    Student("segfault", solved("tile", "causal", rows=in_rows("import ctypes", "ctypes.string_at(8)")),
            ("03-tile", "03-causal"), says=("memory error",)),
    Student("endless", solved("tile", "causal", rows=in_rows("while True: pass")),
            ("03-tile", "03-causal"), says=("never ends",)),
    Student("endless-swallowing", solved("tile", "causal", rows="{rows}" + SWALLOW), ("03-tile", "03-causal"),
            says=("had not ended",)),
    Student("torch-fallback", solved(tile="{tile}" + FALLBACK), says=("PyTorch",)),
    Student("oracle-import", solved(tile="from reference.forward import dense\n\n{tile}"), says=("oracle",)),
    Student("reads-solutions", solved("rows", tile=SEARCH + "{tile}"), ("03-rows",), says=("nothing to be found",)),
    Student("gradebook-edit", solved("rows", "causal", tile=DETACH + HEAD.format(name="tile") + ZERO),
            ("03-rows", "03-causal")),
    Student("blanked-later-cells", blanked_later_cells, ("03-causal",)),
    Student("stripped-check", stripped_check, says=("check of 03.tile had been changed",)),
    Student("lying-equality", solved("causal", tile=LIAR + HEAD.format(name="tile") + LIE), ("03-causal",)),
    Student("patched-runner", solved("rows", tile=PATCH + HEAD.format(name="tile") + ZERO)),
    Student("forged-channel", solved("causal", tile=FORGE + HEAD.format(name="tile") + "    shout()\n" + ZERO),
            ("03-causal",)),
    Student("forged-bytes", solved(tile="{tile}" + RIGHT_BUT_LYING), says=("not plausible",), shares={"03-tile": 8.5}),
    Student("network", solved("causal", tile=NETWORK + "{tile}"), ("03-causal",), says=("no network",)),
    Student("fork-bomb", solved("tile", "causal", rows=in_rows("import os", "while True: os.fork()")),
            ("03-tile", "03-causal"), says=("processes",)),
    Student("memory-hog", solved("tile", "causal", rows=in_rows("return [bytearray(2**26) for _ in range(10**6)]")),
            ("03-tile", "03-causal"), says=("GiB of memory",)),
    Student("disk-fill", solved("tile", "causal", rows=FILL + "{rows}"),
            ("03-tile", "03-causal"), says=("No space left",)),
    Student("zoe-after-them", solved("tile", "causal"), ("03-tile", "03-causal")),
)  # fmt: skip
