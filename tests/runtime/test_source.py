"""The collected module runs by itself, holds only what is used, and knows the student's lines."""

import linecache
import math
import types
from functools import cache, lru_cache, partial

import numpy as np
import pytest
import torch
import triton
import triton.language as lang
import triton.language as tl

from flashkit.runtime.source import SourceError, collect, display_name, is_installed, is_kernel

WIDTH = tl.constexpr(16)
PLAIN = 2.5
TABLE = {"a": (1, float("inf")), "b": [None, True]}
KIND = tl.float16
UNUSED = object()
GRID = lambda meta: (1,)  # noqa: E731
TENSOR = torch.zeros(2)


@triton.jit
def double(value):
    return value * 2


renamed = double


@triton.jit
def kernel(x, y, n, width: lang.constexpr = 4):
    offsets = tl.arange(0, WIDTH)
    value = renamed(tl.load(x + offsets, mask=offsets < n)) * PLAIN + math.pi
    tl.store(y + offsets, double(value).to(KIND), mask=offsets < n)


def shift(x):
    return x + TABLE["a"][0]


def host(x, n=3):
    import os

    y = torch.empty_like(x)
    kernel[(triton.cdiv(n, 4),)](x, y, n, width=len(os.sep))
    return partial(shift)(y) if np.prod(n) else y


def run(source):
    module = types.ModuleType("collected")
    linecache.cache["<collected>"] = (len(source.text), None, source.text.splitlines(True), "<collected>")
    exec(compile(source.text, "<collected>", "exec"), module.__dict__)
    return module


def test_a_kernel_comes_with_its_helpers_constants_and_aliases_and_nothing_else():
    source = collect(kernel)
    assert source.name == "kernel"
    for text in ("import triton.language as tl", "as lang", "import math", "def double", "renamed = double"):
        assert text in source.text
    assert "WIDTH = triton.language.constexpr(16)" in source.text and "PLAIN = 2.5" in source.text
    assert "KIND = triton.language.dtype('fp16')" in source.text
    for text in ("UNUSED", "TABLE", "torch", "InterpretedFunction", "interpreter"):
        assert text not in source.text
    assert source.packages == ("triton",)


def test_after_a_run_the_interpreters_own_names_are_not_collected():
    before = collect(kernel).text
    kernel[(1,)](torch.zeros(16), torch.zeros(16, dtype=torch.float16), 16)
    assert collect(kernel).text == before


def test_every_collected_line_maps_to_the_line_it_was_copied_from():
    source = collect(kernel)
    mine = linecache.getlines(__file__)
    copied = [(text, line) for text, line in zip(source.text.splitlines(), source.lines, strict=True) if line]
    assert len(copied) > 6
    for text, line in copied:
        assert line.where == "test_source.py"
        assert mine[line.lineno - 1].rstrip("\n") == line.text
        assert text.strip() == line.text.strip()
    assert source.locate(1) is None and source.locate(10_000) is None


def test_a_host_function_brings_its_kernels_and_runs_alone_with_the_same_result():
    x = torch.arange(16.0).half()
    module = run(collect(host))
    assert torch.equal(module.host(x, 3)[:3], host(x, 3)[:3])
    assert module.kernel is not kernel and is_kernel(module.kernel)


def test_only_jit_decorators_stay_for_a_kernel_and_all_for_a_host_function():
    @triton.autotune(
        configs=[triton.Config({"n": 16})],
        key=[],
    )
    @triton.jit
    def tuned(x, n: tl.constexpr):
        tl.store(x + tl.arange(0, n), 1.0)

    def launches(x):
        tuned[(1,)](x)

    assert "autotune" not in collect(tuned).text and "@triton.jit" in collect(tuned).text
    assert "autotune" in collect(launches).text


as_kernel = triton.jit


@as_kernel
def renamed_decorator(x, n: tl.constexpr):
    tl.store(x + tl.arange(0, n), 0.0)


def test_jit_by_another_name_stays_too():
    assert "@as_kernel\ndef renamed_decorator" in collect(renamed_decorator).text


@lru_cache
def plan(n):
    return renamed, n + int(PLAIN)


@cache
def whole_plan(n):
    return plan(n)


def test_a_cached_function_comes_with_its_cache():
    def launches(n):
        return whole_plan(n)[1]

    source = collect(launches)
    assert not source.missing and "@lru_cache\ndef plan" in source.text and "@cache\ndef whole_plan" in source.text
    assert run(source).launches(3) == 5


def test_what_a_closure_holds_is_found():
    factor = tl.constexpr(7)

    @triton.jit
    def inner(x):
        tl.store(x, factor)

    assert "factor = triton.language.constexpr(7)" in collect(inner).text


def test_what_cannot_be_written_down_is_listed():
    def reads():
        return TENSOR, UNUSED

    assert collect(reads).missing == {"TENSOR": "Tensor", "UNUSED": "object"}


def test_constants_may_be_types_infinities_and_kernels():
    source = collect(kernel, {"a": tl.float32, "b": float("-inf"), "c": double, "d": "text"})
    values = run(source)._constexprs
    assert values["a"] == tl.float32 and values["b"] == -math.inf and values["d"] == "text"
    assert values["c"].__name__ == "double"


def test_two_helpers_of_one_name_are_refused_in_one_sentence():
    def make(number):
        @triton.jit
        def helper(x):
            return x + number

        return helper

    one, two = make(1), make(2)

    @triton.jit
    def both(x):
        tl.store(x, one(1) + two(2))

    with pytest.raises(SourceError, match="Two different objects are called `helper`"):
        collect(both)


def test_a_function_without_source_is_refused_in_one_sentence():
    scope = {}
    exec("def lost(): pass", scope)
    with pytest.raises(SourceError, match="The source of `lost` cannot be read"):
        collect(scope["lost"])


def test_a_global_lambda_is_refused_in_one_sentence():
    def uses():
        return GRID

    with pytest.raises(SourceError, match="write it with `def`"):
        collect(uses)


def test_a_notebook_cell_is_known_by_its_number():
    shell = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell.instance()
    shell.run_cell("import triton, triton.language as tl", store_history=True)
    shell.run_cell("WIDTH = tl.constexpr(8)\n\n@triton.jit\ndef cell(x):\n    tl.store(x, WIDTH)\n", store_history=True)
    source = collect(shell.user_ns["cell"])
    blamed = [line for line in source.lines if line and "tl.store" in line.text]
    assert (blamed[0].where, blamed[0].lineno) == (f"In[{shell.execution_count - 1}]", 5)
    assert "WIDTH = triton.language.constexpr(8)" in source.text
    shell.clear_instance()


def test_the_students_files_are_told_from_installed_ones():
    assert is_installed(triton.__file__) and is_installed(math.__spec__.origin) and is_installed("<string>")
    assert not is_installed(__file__) and not is_installed("/home/student/work/lab.py")
    assert display_name("/home/student/work/lab.py") == "lab.py"
