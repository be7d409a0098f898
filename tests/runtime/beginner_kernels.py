"""The ten commonest beginner errors as real kernels. The line that must be blamed ends with the comment `# here`."""

import inspect
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

SCALE = 3.0


@triton.jit
def break_in_a_loop(x, y, n):
    total = 0.0
    for i in range(n):
        if i > 3:
            break  # here
        total += tl.load(x + i)
    tl.store(y, total)


@triton.jit
def python_list(x, y, n: tl.constexpr):
    parts = []
    for i in range(4):
        parts.append(tl.load(x + i))  # here
    tl.store(y, parts[0] + parts[1])


@triton.jit
def loop_over_a_list(x, y, n: tl.constexpr):
    total = 0.0
    for pointer in [x, x + 1]:  # here
        total += tl.load(pointer)
    tl.store(y, total)


@triton.jit
def torch_call(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(y + offsets, torch.exp(tl.load(x + offsets)))  # here


@triton.jit
def torch_tensor(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    acc = torch.zeros(n)  # here
    acc += tl.load(x + offsets)
    tl.store(y + offsets, acc)


@triton.jit
def plain_global(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(y + offsets, tl.load(x + offsets) * SCALE)  # here


@triton.jit
def small_dot(x, y, n: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.arange(0, 8)
    tile = tl.load(x + rows[:, None] * 8 + columns[None, :])
    product = tl.dot(tile, tl.trans(tile))  # here
    tl.store(y + rows[:, None] * 16 + rows[None, :], product)


@triton.jit
def loop_carried_type(x, y, n):
    acc = 0
    for i in range(n):
        acc += tl.load(x + i)  # here
    tl.store(y, acc)


@triton.jit
def loop_carried_shape(x, y, n):
    offsets = tl.arange(0, 16)
    best = 0.0
    for i in range(n):
        row = tl.load(x + i + offsets)
        best = tl.maximum(best, row)  # here
    tl.store(y + offsets, best)


@triton.jit
def missing_constexpr(x, y, n):
    offsets = tl.arange(0, n)  # here
    tl.store(y + offsets, tl.load(x + offsets))


@triton.jit
def missing_constexpr_in_zeros(x, y, n):
    acc = tl.zeros((n,), tl.float32)  # here
    tl.store(y, tl.sum(acc))


@triton.jit
def not_a_power_of_two(x, y, n: tl.constexpr):
    offsets = tl.arange(0, 48)  # here
    tl.store(y + offsets, tl.load(x + offsets))


@triton.jit
def dot_types(x, y, n: tl.constexpr):
    rows = tl.arange(0, 16)
    tile = tl.load(x + rows[:, None] * 16 + rows[None, :])
    product = tl.dot(tile, tile.to(tl.float32))  # here
    tl.store(y + rows[:, None] * 16 + rows[None, :], product)


@triton.jit
def blank_raises(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    raise NotImplementedError("load, scale, store")  # here
    tl.store(y + offsets, 0.0)


@triton.jit
def blank_dots(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)
    value = ...  # here
    tl.store(y + offsets, value)


@triton.jit
def product_sign(x, y, n: tl.constexpr):
    offsets = tl.arange(0, n)[:, None] * n + tl.arange(0, n)[None, :]
    tile = tl.load(x + offsets)
    product = tile @ tile.T  # here
    tl.store(y + offsets, product)


@dataclass(frozen=True)
class Beginner:
    """A kernel, words its sentence must hold, and whether the interpreter lets it pass without an error."""

    kernel: object
    words: tuple[str, ...]
    interpreted: bool = False
    dtype: torch.dtype = torch.float32

    def arguments(self):
        """(x, y, n): room for any of the kernels."""
        torch.manual_seed(0)
        return torch.randn(256).to(self.dtype), torch.zeros(256), 16


BEGINNERS = [
    Beginner(break_in_a_loop, ("`break`", "mask"), True),
    Beginner(python_list, ("`parts`", "Python list"), True),
    Beginner(loop_over_a_list, ("`for`", "`range(...)`"), True),
    Beginner(torch_call, ("`torch.exp`", "`tl.exp`")),
    Beginner(torch_tensor, ("`torch.zeros`", "`tl.zeros`")),
    Beginner(plain_global, ("`SCALE`", "tl.constexpr(...)"), True),
    Beginner(small_dot, ("`tl.dot`", "K at least 16"), True, torch.float16),
    Beginner(loop_carried_type, ("`acc`", "int32", "fp32"), True),
    Beginner(loop_carried_shape, ("`best`", "a single fp32", "shape 16"), True),
    Beginner(missing_constexpr, ("`n: tl.constexpr`",)),
    Beginner(missing_constexpr_in_zeros, ("`n: tl.constexpr`",)),
    Beginner(not_a_power_of_two, ("power of two", "next_power_of_2")),
    Beginner(dot_types, ("fp16 and fp32", "p.to(v.dtype)"), False, torch.float16),
    Beginner(product_sign, ("`@`", "tl.dot(a, b)")),
    Beginner(blank_raises, ("blank is not filled in",)),
    Beginner(blank_dots, ("blank is not filled in",)),
]


def blamed_line(kernel) -> tuple[int, str]:
    """Number and text of the line marked `# here`."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return next((first + i, line.rstrip("\n")) for i, line in enumerate(lines) if line.rstrip().endswith("# here"))
