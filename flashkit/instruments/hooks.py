"""The only module that touches the private parts of Triton's interpreter (versions 3.6 to 3.9).

What differs between the versions: 3.9 passes one cache policy where older ones pass a cache modifier and an eviction
policy (so everything after the mask and `other` is passed on untouched), has atomic loads, stores and polls that end
in the plain ones, and has no block pointers. Block pointers and descriptors end in the masked load and store
everywhere, with a mask that is a bare array on some versions.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from typing import Any, NamedTuple

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter, jit
from triton.tools.tensor_descriptor import TensorDescriptor

from flashkit.instruments.record import Argument, Launch

_HIDDEN = (os.path.dirname(triton.__file__) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
_ABSENT = object()


class Line(NamedTuple):
    """A source line of the student's."""

    filename: str
    number: int

    @property
    def text(self) -> str:
        return linecache.getline(self.filename, self.number).strip()


def student_line() -> Line | None:
    """The innermost line on the stack that belongs neither to Triton nor to the instruments."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_HIDDEN):
            return Line(filename, frame.f_lineno)
        frame = frame.f_back
    return None


def interpreting() -> bool:
    """Does this process run `@triton.jit` functions in the interpreter?"""
    return bool(triton.knobs.runtime.interpret)


def program() -> tuple[tuple[int, int, int], int]:
    """The running program's id and its number in the order in which the interpreter runs them."""
    builder = interpreter.interpreter_builder
    (x, y, z), (_, ny, nz) = builder.grid_idx, builder.grid_dim
    return (x, y, z), (x * ny + y) * nz + z


def pointed_size(pointers) -> int:
    """Bytes of the element that a handle's pointers point to."""
    return interpreter._get_np_dtype(pointers.get_element_ty()).itemsize


def filled_like(pointers, value: float):
    """A handle to stand for lanes that hold nothing: `value` for floats, an extreme number for integers."""
    element = pointers.get_element_ty()
    dtype = interpreter._get_np_dtype(element)
    shape = np.shape(pointers.data)
    if element.is_floating() and dtype.kind == "u":  # bf16 and fp8 travel as bit patterns: all ones is a NaN
        data = np.full(shape, np.iinfo(dtype).max, dtype=dtype)
    elif dtype.kind == "f":
        data = np.full(shape, value, dtype=dtype)
    elif dtype.kind == "i":
        data = np.full(shape, np.iinfo(dtype).max, dtype=dtype)
    else:
        data = np.zeros(shape, dtype=dtype) if element.is_ptr() else np.full(shape, -1).astype(dtype)
    return interpreter.TensorHandle(data, element)


def mask_array(mask, shape) -> np.ndarray:
    """A mask as a bool array of the pointers' shape; descriptors of older versions pass bare arrays."""
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return np.broadcast_to(np.asarray(data, dtype=bool), shape)


def describe_launch(kernel, args, kwargs) -> Launch:
    """What the compiler would be given for this launch: type strings, constexpr values, options."""
    own = {k: v for k, v in kwargs.items() if k in kernel.arg_names}
    options = {k: v for k, v in kwargs.items() if k not in kernel.arg_names}
    try:
        values = inspect.getcallargs(kernel.fn, *args, **own)
    except TypeError:  # wrong arguments: the interpreter says so in a moment
        values = {}
    given = kernel.kwargs if hasattr(kernel, "kwargs") else vars(kernel)  # interpreted, or compiled
    plain = set(given.get("do_not_specialize") or ())
    arguments = {}
    for number, parameter in enumerate(inspect.signature(kernel.fn).parameters.values()):
        if parameter.name in values:
            known = jit.KernelParam(number, parameter, number in plain or parameter.name in plain, False)
            arguments[parameter.name] = _argument(known, values[parameter.name])
    return Launch(kernel=kernel, name=kernel.__name__, arguments=arguments, options=options)


def _argument(parameter, value) -> Argument:
    if parameter.is_constexpr:
        return Argument("constexpr", getattr(value, "value", value))
    try:
        type_ = parameter.annotation_type or jit.mangle_type(value, not parameter.do_not_specialize)
    except TypeError:  # a string, a dtype: the compiler refuses it too, unless the parameter is a constexpr
        type_ = None
    if hasattr(value, "data_ptr") or isinstance(value, (tuple, TensorDescriptor)):
        address = value.data_ptr() if hasattr(value, "data_ptr") else 1
        return Argument(type_, None, address % 16 == 0)
    return Argument(type_, value, isinstance(value, int) and value % 16 == 0)


def tensors_of(names, device_args, device_kwargs, host_args, host_kwargs):
    """(parameter name, tensor, the interpreter's copy of it on the host) of every tensor argument of a launch.

    On a CPU the copy is the tensor itself. Descriptors give their base, tuples their members.
    """
    found = []

    def look(name, device, host):
        if isinstance(device, tuple):
            for i, (d, h) in enumerate(zip(device, host, strict=True)):
                look(f"{name}[{i}]", d, h)
        elif isinstance(device, (TensorDescriptor, jit.TensorWrapper)):
            look(name, device.base, host.base)
        elif hasattr(device, "untyped_storage"):
            found.append((name, device, host))

    for name, device, host in zip(names, device_args, host_args, strict=False):
        look(name, device, host)
    for name, device in device_kwargs.items():
        look(name, device, host_kwargs[name])
    return found


class Hooks:
    """Stand between kernels and the interpreter's memory operations while open; put everything back on closing.

    The watcher is told, in this order: `launch(kernel, args, kwargs)` (a context manager around the launch),
    `bind(tensors)`, `grid(dimensions)`, and `load`, `store`, `atomic` before each access; what `load` returns is used
    as `other`.
    """

    def __init__(self, watcher):
        self.watcher = watcher
        self._undo: list[tuple[Any, str, Any]] = []

    def open(self) -> None:
        try:
            self._watch_launches()
            self._watch_memory(interpreter.interpreter_builder)
            self._refuse_bf16_arithmetic(interpreter.interpreter_builder)
            self._let_numbers_be_loop_bounds()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._undo:
            owner, name, before = self._undo.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _replace(self, owner, name, replacement):
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, replacement)

    def _watch_launches(self):
        watcher = self.watcher
        run = interpreter.InterpretedFunction.run
        to_host = interpreter.GridExecutor._init_args_hst

        def metered_run(kernel, *args, grid, warmup, **kwargs):
            if warmup:
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            with watcher.launch(kernel, args, kwargs):
                _know_constexprs(kernel)
                return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        def metered_to_host(executor, device_args, device_kwargs):
            host_args, host_kwargs = to_host(executor, device_args, device_kwargs)
            watcher.bind(tensors_of(executor.arg_names, device_args, device_kwargs, host_args, host_kwargs))
            return host_args, host_kwargs

        self._replace(interpreter.InterpretedFunction, "run", metered_run)
        self._replace(interpreter.GridExecutor, "_init_args_hst", metered_to_host)

    def _watch_memory(self, builder):
        watcher = self.watcher
        set_grid, load, store = builder.set_grid_dim, builder.create_masked_load, builder.create_masked_store
        rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas
        exchange = interpreter._ir.ATOMIC_OP.XCHG

        def metered_grid(*dimensions):
            watcher.grid(dimensions)
            return set_grid(*dimensions)

        def metered_load(pointers, mask, other, *rest, **options):
            return load(pointers, mask, watcher.load(pointers, mask, other), *rest, **options)

        def metered_store(pointers, value, mask, *rest, **options):
            watcher.store(pointers, mask)
            return store(pointers, value, mask, *rest, **options)

        def metered_rmw(operation, pointers, value, mask, *rest):
            watcher.atomic(pointers, mask, lock=operation == exchange, reads=operation != exchange)
            return rmw(operation, pointers, value, mask, *rest)

        def metered_cas(pointers, *rest):
            watcher.atomic(pointers, np.array(True), lock=True, reads=True)
            return cas(pointers, *rest)

        for name, replacement in {
            "set_grid_dim": metered_grid,
            "create_masked_load": metered_load,
            "create_masked_store": metered_store,
            "create_atomic_rmw": metered_rmw,
            "create_atomic_cas": metered_cas,
        }.items():
            self._replace(builder, name, replacement)
        for name in ("create_atomic_load", "create_atomic_store", "create_atomic_poll"):  # 3.9
            if hasattr(builder, name):
                self._replace(builder, name, self._as_atomic(getattr(builder, name)))

    def _refuse_bf16_arithmetic(self, builder):
        """The interpreter keeps bf16 as 16-bit integers and computes with those: wrong by 1e10, and silent."""
        for name, operands in (("binary_op", 2), ("ternary_op", 3), ("unary_op", 1), ("create_dot", 2)):
            self._replace(builder, name, _bf16_refused(getattr(builder, name), operands))

    def _let_numbers_be_loop_bounds(self):
        """Triton 3.6 makes an int of an array of one element, which NumPy refuses since 2.4; later ones squeeze it."""
        patch = interpreter._patch_lang_tensor

        def patched(tensor, scope):
            patch(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda number: int(number.handle.data.squeeze()))

        self._replace(interpreter, "_patch_lang_tensor", patched)

    def _as_atomic(self, operation):
        """Count what the operation loads and stores as atomic; it exists to order programs, so it acts as a lock."""

        def metered(*args, **options):
            with self.watcher.ordering():
                return operation(*args, **options)

        return metered


def _know_constexprs(kernel) -> None:
    """The interpreter reads annotations as texts, so it knows no ``T.constexpr`` or ``C``; the compiler does."""
    annotations = kernel.rewrite().__annotations__
    for number, parameter in enumerate(inspect.signature(kernel.fn).parameters.values()):
        if jit.KernelParam(number, parameter, False, False).is_constexpr:
            annotations[parameter.name] = "constexpr"


def _bf16_refused(operation, operands: int):
    def checked(*args):
        if any(getattr(arg, "dtype", None) == tl.bfloat16 for arg in args[:operands]):
            raise TypeError("bf16 arithmetic is wrong in the interpreter: use fp16 or fp32 inputs on a CPU")
        return operation(*args)

    return checked
