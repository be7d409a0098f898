"""Each beginner error gets one sentence that names it and the student's own line, from interpreter and compiler."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashkit.instruments.compile_gate import CompileResult, start
from flashkit.instruments.meter import Meter
from flashkit.runtime.beginner_errors import Evidence, say
from flashkit.runtime.explain import explain, explain_compile
from flashkit.runtime.source import Line
from tests.runtime.beginner_kernels import BEGINNERS, blamed_line


def launch(kernel, *arguments, **options):
    """Runs a kernel once under the meter: the Launch, and the error it raised or None."""
    with Meter(names={}) as meter:
        try:
            kernel[(1,)](*arguments, **options)
            error = None
        except Exception as raised:
            error = raised
    return meter.finish(outputs={}).launches[-1], error


def raised_by(function):
    with pytest.raises(Exception) as caught:
        function()
    return explain(caught.value)


@pytest.fixture(scope="module")
def compiled():
    """All beginner kernels, each in its own child, compiling while the first tests run."""
    return {b.kernel.__name__: start(launch(b.kernel, *b.arguments())[0]) for b in BEGINNERS}


def assert_blames(told, beginner):
    lineno, line = blamed_line(beginner.kernel)
    for word in beginner.words:
        assert word in told.sentence
    assert "\n" not in told.sentence and told.sentence.endswith((".", "?"))
    assert (told.where, told.lineno, told.line) == ("beginner_kernels.py", lineno, line)


@pytest.mark.parametrize("beginner", BEGINNERS, ids=lambda b: b.kernel.__name__)
def test_the_compiler_refuses_it_and_the_sentence_names_mistake_and_line(beginner, compiled):
    result = compiled[beginner.kernel.__name__].result(120)
    assert result.kind == "refused"
    assert_blames(explain_compile(result), beginner)


@pytest.mark.parametrize("beginner", BEGINNERS, ids=lambda b: b.kernel.__name__)
def test_the_interpreter_passes_it_or_the_sentence_names_mistake_and_line(beginner):
    _, error = launch(beginner.kernel, *beginner.arguments())
    if beginner.interpreted:
        assert error is None
    else:
        assert_blames(explain(error), beginner)


# ---- errors of plain Python, of the launch, of shapes -----------------------------------------------------


@triton.jit
def copy(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(y + offsets, tl.load(x + offsets))


tuned = triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (4, 8)], key=[])(copy)


@triton.jit
def shapes(x, y):
    tl.store(y + tl.arange(0, 32), tl.load(x + tl.arange(0, 16)))


@triton.jit
def misspelt(x, y):
    tl.store(y, tl.expp(tl.load(x)))


@triton.jit
def misspelt_variable(x, y):
    value = tl.load(x)
    tl.store(y, value + valeu)  # noqa: F821


@triton.jit
def misspelt_beside_a_pair(x, y):
    value, twice = tl.load(x), 2.0  # noqa: F841
    tl.store(y, twice * valeu)  # noqa: F821


@triton.jit
def in_bf16(x, y):
    tl.store(y, tl.dot(tl.zeros((16, 16), tl.bfloat16), tl.zeros((16, 8), tl.float16)))


X, Y = torch.zeros(64), torch.zeros(64)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: copy[(1,)](X, Y), "`copy` is called without `n`"),
        (lambda: copy[(1,)](X, Y, 16, 4), "`copy` has 3 parameters but is given 4"),
        (lambda: copy[(1,)](X, Y, 16, n=4), "given `n` twice"),
        (lambda: copy(X, Y, 16), "write `copy[(programs,)](...)`"),
        (lambda: copy[4](X, Y, 16), "The grid must be a tuple"),
        (lambda: copy[(1.5,)](X, Y, 16), "The grid must be a tuple"),
        (lambda: tuned[(1,)](X, Y, 16), "leave a single `triton.Config`"),
        (lambda: copy[(1,)](5, Y, 16), "`tl.load` needs pointers, but is given int32"),
        (lambda: copy[(1,)](X.numpy(), Y, 16), "NumPy array"),
        (lambda: shapes[(1,)](X, Y), "dimension 0 is 32 on one side and 16 on the other"),
        (lambda: misspelt[(1,)](X, Y), "did you mean `tl.exp`?"),
        (lambda: misspelt_variable[(1,)](X, Y), "did you mean `value`?"),
        (lambda: misspelt_beside_a_pair[(1,)](X, Y), "did you mean `value`?"),
        (lambda: X + torch.zeros(63), "dimension 0 is 64 on one side and 63 on the other"),
        (lambda: np.zeros((2, 3)) + np.zeros((2, 4)), "Shapes (2,3) (2,4)".replace(" (2,4)", " and (2,4)")),
        (lambda: torch.zzeros(3), "did you mean `zeros`?"),
        (lambda: X.sise, "A Tensor has no `sise`"),
        (lambda: None.shape, "None"),
        (lambda: nowhere, "`nowhere` is not defined"),  # noqa: F821
        (lambda: X[70], "An index on this line"),
        (lambda: __import__("flash_attn_9"), "`flash_attn_9` is not installed"),
        (lambda: 1 / 0, "divides by zero"),
        (lambda: {}["key"], "There is no entry key"),
        (lambda: compile("def f(:\n", "<cell>", "exec"), "not valid Python"),
        (lambda: torch.zeros(4).reshape(3), "RuntimeError: shape '[3]' is invalid for input of size 4"),
    ],
)
def test_one_sentence_for_other_errors(call, words):
    told = raised_by(call)
    assert words in told.sentence
    assert "\n" not in told.sentence


@pytest.mark.parametrize(
    "message, line, words",
    [
        (
            "warp specialize got 2 partitions but 1 register counts",
            "gl.warp_specialize([",
            "2 workers and 1 numbers of reg",
        ),
        ("", "o_desc.store([b, h, 0, 0], O_i)", "do not fit the descriptor"),
    ],
)
def test_assertions_of_triton_are_put_in_words(message, line, words):
    assert words in say(Evidence("AssertionError", message, Line("In[1]", 1, line))).sentence


def test_a_launch_without_grid_blames_the_launch_not_the_kernel():
    told = raised_by(lambda: shapes(X, Y))
    assert "lambda: shapes(X, Y)" in told.line


def test_an_error_in_a_helper_kernel_blames_the_helper():
    _, error = launch(uses_helper, X, Y)
    told = explain(error)
    assert told.line.strip() == "return tl.load(pointer + tl.arange(0, 12))"


@triton.jit
def helper(pointer):
    return tl.load(pointer + tl.arange(0, 12))


@triton.jit
def uses_helper(x, y):
    tl.store(y, tl.sum(helper(x)))


@triton.jit
def fine_with_constants(x, y, n):
    acc = tl.full((n,), -np.inf, tl.float32)
    tl.store(y, tl.max(acc))


def test_a_constant_of_numpy_is_not_blamed():
    _, error = launch(fine_with_constants, X, Y, 16)
    assert "`n: tl.constexpr`" in explain(error).sentence


def test_text_and_html_fold_the_traceback_below_the_line():
    _, error = launch(misspelt, X, Y)
    told = explain(error)
    lines = told.text().splitlines()
    assert lines[0] == told.sentence
    assert lines[1].strip() == f"test_explain.py, line {told.lineno}: tl.store(y, tl.expp(tl.load(x)))"
    assert all(line.startswith("    ") for line in lines[2:] if line)
    assert "of triton" in told.traceback and "interpreter.py" not in told.traceback
    page = told._repr_html_()
    assert page.index("<strong>") < page.index("<details>") < page.index("Traceback (most recent call last)")


def test_html_escapes_what_the_student_wrote():
    told = raised_by(lambda: {}["<script>alert(1)</script>"])
    assert "<script>" not in told._repr_html_()


def test_what_could_not_be_compiled_is_not_called_wrong():
    late = CompileResult("flash", "timeout", 30.0, message="The compiler did not finish within 30 s.")
    assert explain_compile(late).sentence.startswith("Whether `flash` compiles is not judged")
    crash = CompileResult("flash", "crashed", error="CompilerCrash", message="Assertion failed")
    assert "Triton's compiler itself fails on `flash`" in explain_compile(crash).sentence
