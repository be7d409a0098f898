"""A kernel is compiled only if its source is the submission's own and importing it runs nothing."""

import math

import pytest

from flashkit.grading import compile_apart, plain_module
from flashkit.grading.sandbox import Limits
from flashkit.instruments import compile_gate


@pytest.fixture(scope="module")
def claim():
    """What a child says of the warm-up's launch, as if its source stood in a cell."""
    from flashkit.runtime import warm as module  # not at the top: it needs the interpreter

    outcome = module.warm()
    assert outcome.problem is None and outcome.launches
    described = compile_gate.describe(outcome.launches[0])
    with open(module.__file__) as file:
        return described, {"warm.py": file.read()}


def answer(claim, cells):
    return compile_apart.start_kernel(claim, cells, Limits()).result(60)


@pytest.mark.classroom
def test_an_honest_claim_compiles(claim):
    result = answer(*claim)
    assert result.ok and result.registers and result.arch == 90


def changed(claim, **source):
    described, cells = claim
    return {**described, "source": {**described["source"], **source}}, cells


def test_a_source_that_is_not_in_the_submission_is_not_compiled(claim):
    described, _ = claim
    result = answer(described, {"warm.py": "nothing"})
    assert (result.kind, result.message) == ("unavailable", "Its source is not the submission's.")


def test_lines_that_nobody_wrote_are_not_compiled(claim):
    lines = [None] * len(claim[0]["source"]["lines"])
    assert answer(*changed(claim, lines=lines)).kind == "unavailable"


@pytest.mark.parametrize(
    "line",
    [
        "print('hello')",
        "x = __import__('os').system('true')",
        "import os",
        "class A: pass",
        "x = (lambda: 1)()",
        "for i in range(3): pass",
        "tl = exec; x = tl('1')",
        "float = exec",
        "import numpy.testing._private.utils as tl",
        "import triton.runtime.build",
        "from triton.runtime import build as tl",
        "from triton.language.core import *",
        "from triton import constexpr_function as tl",
        "import math as triton",
        "x = triton.runtime.build.compile_module_from_src('', '')",
        "x = tl.dot(1, 2)",
        "x[0] = 1",
        "@triton.constexpr_function\ndef f(): pass",
        "@exec\ndef f(): pass",
        "@triton.jit\ndef f(x=tl.static_range(3)): pass",
        "@triton.jit\ndef f() -> exec('1'): pass",
        "_constexprs = {'block': 1024}",  # a second set, for one who reads the last
        "@triton.jit\ndef _copy_kernel(): pass",
    ],
)
def test_a_module_that_would_run_code_is_not_compiled(claim, line):
    source = claim[0]["source"]
    changes = {"text": source["text"] + line + "\n", "lines": [*source["lines"], *[None] * (line.count("\n") + 1)]}
    result = answer(*changed(claim, **changes))
    assert result.kind == "unavailable" and "more than define" in result.message


@pytest.mark.parametrize(
    "more", ["x = _constexprs", 'x = """\n_constexprs = {"block": 1024}\n"""', "# _constexprs = {'block': 1024}"]
)
def test_constants_are_those_of_the_last_line(claim, more):
    source = claim[0]["source"]
    text = source["text"].replace("\n_constexprs = ", "\nx = _constexprs = ") + more + "\n"
    result = answer(*changed(claim, text=text, lines=[*source["lines"], *[None] * (more.count("\n") + 1)]))
    assert result.kind == "unavailable" and result.message


@pytest.mark.classroom
@pytest.mark.parametrize("odd", ["\x0c", "\u2028"])
def test_a_character_that_ends_lines_elsewhere_ends_none_here(claim, odd):
    """A form feed or a separator in a comment, as pasted text has it."""
    commented = lambda text: text.replace("other=0.0)", f"other=0.0)  # {odd} odd")  # noqa: E731
    described, cells = claim
    source = described["source"]
    lines = [line and [*line[:2], commented(line[2])] for line in source["lines"]]
    own = {name: commented(text) for name, text in cells.items()}
    assert answer({**described, "source": {**source, "text": commented(source["text"]), "lines": lines}}, own).ok


def test_no_character_hides_a_line_that_nobody_wrote(claim):
    """Counted otherwise, the separators would put lines that are not looked at in place of the function's."""
    source = claim[0]["source"]
    at = next(n for n, line in enumerate(source["lines"]) if line and "tl.store" in line[2])
    texts = source["text"].split("\n")
    texts[at] = texts[at].replace("x, mask", "2 * x, mask")
    texts[0] += "  # " + 30 * "\u2028#"
    text, lines = "\n".join(texts), [None] * 30 + source["lines"]
    assert answer(*changed(claim, text=text, lines=lines)).kind == "unavailable"


@pytest.mark.parametrize("claimed", [{}, {"name": 3}, {"source": None}, {"source": {}}, {"kind": "ok", "error": 1}])
def test_a_claim_that_makes_no_sense_is_not_judged(claimed):
    assert answer(claimed, {}).kind == "unavailable"


@pytest.mark.parametrize(
    "line",
    [
        "from triton.language.standard import cdiv as cdiv",
        "from triton.runtime.jit import jit as kernel\n@kernel\ndef f(x: tl.constexpr = tl.constexpr(3)): pass",
        "import triton.experimental.gluon as g\n@g.jit(noinline=True)\ndef f(x, y=-float('inf')): pass",
        "from triton.experimental.gluon._runtime import jit as jit\n@jit\ndef f(n: 'tl.constexpr', *, w=(1, 2)): pass",
        "import numpy as np\nimport torch.nn.functional as F\nDTYPE = torch.float16",
        "BLOCK = triton.language.constexpr(64)\nHALF = triton.language.dtype('fp16')\nSMALL = float('-inf')",
        "@triton.jit(do_not_specialize=['n'])\ndef f(n) -> tl.tensor: pass",
    ],
)
def test_unusual_but_plain_modules_are_taken(line):
    assert plain_module.not_plain("import triton\nimport triton.language\nimport triton.language as tl\n" + line) == ""


@pytest.mark.parametrize(
    "more", ["def (", "x = " + "-" * 90_000 + "1", "x = '\0'", "x = '\ud800'", "x = [" + "1," * 10**6 + "]"]
)
def test_a_text_that_no_parser_takes_is_not_judged(claim, more):
    source = claim[0]["source"]
    result = answer(*changed(claim, text=source["text"] + more + "\n", lines=[*source["lines"], None]))
    assert result.kind == "unavailable"


@pytest.mark.parametrize(
    "change", [{"lines": [["w", math.inf, "x"]]}, {"options": {"num_stages": math.inf}}, {"lines": [[]]}]
)
def test_endless_numbers_and_empty_lines_are_not_judged(claim, change):
    described, cells = claim
    parts = {name: {**described[name], **change} for name in ("source", "request")}
    assert answer({**described, **parts}, cells).kind == "unavailable"


def test_a_claim_does_not_choose_the_compiler_or_its_files(claim):
    described, _ = claim
    wanted = {"num_warps": 8, "arch": "sm80", "ir_override": "/tmp/x.ptx", "extern_libs": "x", "ptx_options": "-o x"}
    asked = {**described["request"], "options": wanted, "torch_modules": ["os"]}
    source = compile_apart._source(described["source"])
    request = compile_apart._request(asked, source, 90)
    assert request["options"] == {"num_warps": 8} and request["torch_modules"] == [] and request["arch"] == 90


FORGED = 'exec("import os; os.write(3, b\'{\\"ok\\": true, \\"registers\\": 1}\'); os._exit(0)")'


@pytest.mark.classroom
@pytest.mark.parametrize("line", [f"tl.core.builtins.{FORGED}", "with tl.core.partial(float): pass"])
def test_a_kernel_runs_no_python_of_its_own_while_it_is_compiled(claim, line):
    text = f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef own(x, n: tl.constexpr):\n    {line}"
    lines = [None if n < 3 else ["cell", n + 1, t] for n, t in enumerate(text.split("\n"))]
    source = {"text": f"{text}\n_constexprs = {{'n': 1}}\n", "name": "own", "lines": [*lines, None]}
    request = {**claim[0]["request"], "types": {"x": "*fp32", "n": "constexpr"}, "aligned": []}
    result = answer({"name": "own", "source": source, "request": request}, {"cell": text})
    assert result.kind == "refused" and "cannot be called in a kernel" in result.message


@pytest.mark.classroom
def test_a_compilation_that_takes_too_much_memory_is_ended(claim, monkeypatch):
    monkeypatch.setattr(compile_apart, "too_much", lambda pid, limits: "It used more than 4 GiB of memory.")
    result = answer(*claim)
    assert result.kind == "timeout" and "out of memory" in result.message
