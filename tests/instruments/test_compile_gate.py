"""The compile gate takes good kernels, and turns everything that can go wrong in its child into an answer."""

import json
import os
import resource
import time

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashkit.instruments import compile_gate
from flashkit.instruments.compile_gate import distinct, start
from flashkit.instruments.hooks import describe_launch
from flashkit.instruments.meter import Meter
from flashkit.runtime.explain import explain_compile

LOG2E = tl.constexpr(1.4426950408889634)


def launches(kernel, *arguments, grid=(1,), **options):
    with Meter(names={}) as meter:
        kernel[grid](*arguments, **options)
    return meter.finish(outputs={}).launches


@triton.jit
def rescale(acc, old, new):
    return acc * tl.exp2((old - new) * LOG2E)[:, None]


@triton.jit
def forward(q, k, v, o, n, scale, block_q: tl.constexpr, block_k: tl.constexpr, d: tl.constexpr):
    rows, columns, lanes = tl.arange(0, block_q), tl.arange(0, block_k), tl.arange(0, d)
    q_i = tl.load(q + rows[:, None] * d + lanes[None, :], mask=rows[:, None] < n, other=0.0)
    m = tl.full((block_q,), float("-inf"), tl.float32)
    l = tl.zeros((block_q,), tl.float32)
    acc = tl.zeros((block_q, d), tl.float32)
    for start_k in range(0, n, block_k):
        keys = start_k + columns
        k_j = tl.load(k + keys[:, None] * d + lanes[None, :], mask=keys[:, None] < n, other=0.0)
        v_j = tl.load(v + keys[:, None] * d + lanes[None, :], mask=keys[:, None] < n, other=0.0)
        s = tl.dot(q_i, tl.trans(k_j), input_precision="ieee") * scale
        s = tl.where(keys[None, :] < n, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2((s - m_new[:, None]) * LOG2E)
        l = l * tl.exp2((m - m_new) * LOG2E) + tl.sum(p, 1)
        acc = rescale(acc, m, m_new)
        acc = tl.dot(p.to(v_j.dtype), v_j, acc, input_precision="ieee")
        m = m_new
    out = acc / l[:, None]
    tl.store(o + rows[:, None] * d + lanes[None, :], out.to(o.dtype.element_ty), mask=rows[:, None] < n)


@triton.jit
def copy_described(source, target, block: tl.constexpr):
    tile = source.load([0, 0])
    made = tl.make_tensor_descriptor(target, [64, 64], [64, 1], [block, 64])
    made.store([0, 0], tile)


@triton.jit
def scale_kernel(x, y, n, factor, optional, KIND: tl.constexpr, ACTIVATION: tl.constexpr, TYPE: tl.constexpr):
    value = tl.load(x)
    if KIND == "double":
        value = ACTIVATION(value)
    if optional is not None:
        value += tl.load(optional)
    tl.store(y, (value * factor * n).to(TYPE))


@triton.jit
def twice(value):
    return value * 2


def forward_launch(dtype, n=128, block=64, d=64, **options):
    q, k, v, o = (torch.zeros(n, d, dtype=dtype) for _ in range(4))
    return launches(forward, q, k, v, o, n, 0.125, block, block, d, **options)[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_attention_forward_with_helper_and_constexpr_global_compiles(dtype):
    result = start(forward_launch(dtype, num_warps=4, num_stages=2)).result(120)
    assert result.ok, result.message
    assert 0 < result.registers <= 255 and result.shared > 0 and result.spills is not None


def test_bf16_which_the_interpreter_cannot_judge_compiles():
    x, y = torch.zeros(64, dtype=torch.bfloat16), torch.zeros(64)
    assert start(launches(move, x, y)[0]).result(120).ok


@triton.jit
def move(x, y):
    offsets = tl.arange(0, 64)
    tl.store(y + offsets, tl.load(x + offsets).to(tl.float32))


def test_host_and_device_descriptors_compile():
    x, y = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64, dtype=torch.float16)
    result = start(launches(copy_described, TensorDescriptor.from_tensor(x, [32, 64]), y, 32)[0]).result(120)
    assert result.ok, result.message


def test_constexprs_of_every_kind_compile():
    x, y = torch.zeros(1), torch.zeros(1)
    found = launches(scale_kernel, x, y, 1, 2.5, None, KIND="double", ACTIVATION=twice, TYPE=tl.float32)
    result = start(found[0]).result(120)
    assert result.ok, result.message


def test_a_kernel_in_a_closure_and_under_autotune_compiles():
    factor = tl.constexpr(3)

    @triton.autotune(configs=[triton.Config({"block": 16}, num_warps=2)], key=[])
    @triton.jit
    def inner(x, y, block: tl.constexpr):
        offsets = tl.arange(0, block)
        tl.store(y + offsets, twice(tl.load(x + offsets)) * factor)

    # described, not run: the interpreter loses a closure's names
    launch = describe_launch(inner.fn, (torch.zeros(64), torch.zeros(64)), {"block": 16})
    result = start(launch).result()
    assert result.ok, result.message


@triton.jit
def specialised(q, o, n, block: tl.constexpr):
    rows = tl.arange(0, block)
    tile = tl.load(q + rows[:, None] * block + rows[None, :])
    acc = tl.zeros((block, block), tl.float32)
    for start_k in tl.range(0, n, block, warp_specialize=True):
        k_j = tl.load(q + (start_k + rows)[:, None] * block + rows[None, :])
        acc = tl.dot(tl.dot(tile, tl.trans(k_j)).to(k_j.dtype), k_j, acc)
    tl.store(o + rows[:, None] * block + rows[None, :], acc)


def test_a_kernel_that_breaks_the_compiler_itself_is_a_crash_with_its_words():
    q, o = torch.zeros(128, 128, dtype=torch.float16), torch.zeros(128, 128)
    result = start(describe_launch(specialised, (q, o, 128, 128), {"num_warps": 4})).result()
    assert result.kind == "crashed"
    assert "leave out `warp_specialize`" in explain_compile(result).sentence
    assert "producer commit" in result.traceback or "Assertion" in result.traceback


def processor_seconds():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


@pytest.mark.alone
def test_the_answer_comes_within_seconds_and_start_does_not_wait():
    """In processor time, its child's included: another program's load is not the compiler's."""
    launch = forward_launch(torch.float16)
    began = processor_seconds()
    pending = start(launch)
    assert processor_seconds() - began < 0.5
    assert pending.result(120).ok
    assert processor_seconds() - began < 5


def test_shared_memory_beyond_the_architecture_is_refused():
    launch = forward_launch(torch.float16, n=256, block=128, d=128, num_warps=8, num_stages=3)
    assert start(launch, arch=90).result(120).ok
    result = start(launch, arch=86).result()
    assert (result.kind, result.error) == ("refused", "OutOfResources")


def test_a_launch_keyword_that_nobody_knows_is_refused():
    launch = launches(move, torch.zeros(64), torch.zeros(64), num_warp=4)[0]
    result = start(launch).result()
    assert (result.kind, result.error) == ("refused", "KeyError")


def test_distinct_keeps_one_launch_for_each_signature():
    small, large = torch.zeros(64), torch.zeros(128, dtype=torch.float16)
    found = launches(move, small, small) + launches(move, small[:64], small) + launches(move, large, small)
    found += launches(move, small, small, num_warps=8)
    assert distinct(found) == [found[0], found[2], found[3]]


def test_a_kernel_whose_source_cannot_be_read_is_not_judged():
    scope = {"triton": triton, "tl": tl}
    exec("@triton.jit\ndef lost(x, y):\n    tl.store(y, tl.load(x))\n", scope)
    result = start(launches(scope["lost"], torch.zeros(1), torch.zeros(1))[0]).result(120)
    assert result.kind == "unavailable" and "`lost`" in result.message


# ---- a child that misbehaves ------------------------------------------------------------------------------


@pytest.fixture
def child(tmp_path, monkeypatch):
    def replace(text):
        path = tmp_path / "child.py"
        path.write_text(text)
        monkeypatch.setattr(compile_gate, "CHILD", path)
        return start(launches(move, torch.zeros(64), torch.zeros(64))[0])

    return replace


def test_a_hanging_child_is_a_timeout_and_is_ended_with_its_own_children(child):
    pending = child(
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1] + '/pid', 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    deadline = time.monotonic() + 60
    file = os.path.join(pending._folder.name, "pid")
    while not (os.path.exists(file) and open(file).read()) and time.monotonic() < deadline:
        time.sleep(0.02)
    grandchild = int(open(file).read())
    result = pending.result(timeout=0.1)
    assert (result.kind, result.message) == ("timeout", "The compiler did not finish within 0.1 s.")
    assert not os.path.exists(file)
    assert _gone(grandchild)


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_dying_child_is_a_crash_with_what_it_said(child):
    said = "module.py:4:3: error\nWSLower: Assertion `x` failed."
    result = child(f"import os, sys\nprint({said!r}, file=sys.stderr, flush=True)\nos.abort()").result()
    assert result.kind == "crashed"
    assert "SIGABRT" in result.message and "Assertion `x` failed" in result.message


def test_a_child_that_answers_nonsense_is_not_held_against_the_student(child):
    assert child("print('hello')").result().kind == "unavailable"
    assert child("import sys; sys.exit('no compiler here')").result().kind == "unavailable"


def test_a_megabyte_on_stderr_does_not_block(child):
    answer = json.dumps({"ok": True, "shared": 0, "seconds": 0.1})
    assert child(f"import sys\nsys.stderr.write('x' * 10**6)\nprint('''{answer}''')").result(120).ok


def test_a_cancelled_compilation_is_not_judged(child):
    pending = child("import time; time.sleep(60)")
    pending.cancel()
    assert pending.result().kind == "unavailable"


@triton.jit
def prints(x, y):
    tl.static_print("hello from the compiler")
    tl.store(y, tl.load(x))


def test_what_a_kernel_prints_at_compile_time_does_not_disturb_the_answer():
    assert start(launches(prints, torch.zeros(1), torch.zeros(1))[0]).result(120).ok
