"""Runs a Gluon kernel's Python text on a CPU: roles in turns, copies and products as late as the hardware may do them.

Gluon has no interpreter, so this small one stands in for it in our own proofs; nobody's grade depends on it. It knows
what lab 07 uses. Adversarial on purpose: a TMA copy spoils its target at once and lands at a random later moment, and
an asynchronous product reads its operands only when it is waited for. Only fp16 is computed; layouts and registers
are the compiler's to judge.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import threading
import types
from collections.abc import Callable

import numpy as np
import torch

import flashkit.runtime.hopper  # noqa: F401  the real names, which are put back after a lab is loaded
from flashkit.exercises import lab_cells

SWITCHES = 200_000  # turns of roles, after which a program counts as endless


class Fault(Exception):
    """What went wrong, as ``kind``: "deadlock", "read before full", "overwritten" or "arrival count"."""

    def __init__(self, kind: str, told: str):
        super().__init__(f"{kind}: {told}")
        self.kind = kind


# ---- values ---------------------------------------------------------------------------------------------


class Value:
    """A tensor or a scalar of a kernel."""

    def __init__(self, data):
        self.data = np.asarray(data)
        self.type = types.SimpleNamespace(layout="registers")

    shape = property(lambda self: list(self.data.shape))
    dtype = property(lambda self: self.data.dtype)

    def to(self, dtype):
        return Value(self.data.astype(dtype))

    def __getitem__(self, index):
        return Value(self.data[index])

    def __index__(self):
        return int(self.data)

    def __bool__(self):
        return bool(self.data)


def _binary(name: str):
    def operation(self, other, *, flip=False):
        a, b = _data(self), _data(other)
        a, b = (b, a) if flip else (a, b)
        if name == "__add__" and isinstance(b, Pointer | type(None)):
            return NotImplemented
        return Value(getattr(np.asarray(a), name)(np.asarray(b)))

    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"):
    setattr(Value, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(Value, f"__r{_name}__", functools.partialmethod(_binary(f"__{_name}__"), flip=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Value, f"__{_name}__", _binary(f"__{_name}__"))
Value.__neg__ = lambda self: Value(-self.data)


def _data(x):
    return x.data if isinstance(x, Value) else x


class Pointer:
    def __init__(self, flat: np.ndarray, offset=0):
        self.flat, self.offset = flat, offset

    def __add__(self, offset):
        return Pointer(self.flat, self.offset + _data(offset))


# ---- shared memory and barriers ---------------------------------------------------------------------------


class Memory:
    """Shared memory, or a box of it. ``spoilt`` marks bytes that a copy is about to write, or that nothing wrote."""

    def __init__(self, data, spoilt, dtype):
        self.data, self.spoilt, self.dtype, self.layout = data, spoilt, dtype, None

    shape = property(lambda self: list(self.data.shape))

    def index(self, n):
        n = int(_data(n))
        return Memory(self.data[n], self.spoilt[n], self.dtype) if self.data.dtype != object else self.data[n, 0]

    def reshape(self, shape):
        return Memory(self.data.reshape(shape), self.spoilt.reshape(shape), self.dtype)

    def permute(self, order):
        return Memory(self.data.transpose(order), self.spoilt.transpose(order), self.dtype)

    def store(self, value):
        self.data[...], self.spoilt[...] = _data(value), False

    def read(self) -> np.ndarray:
        if self.spoilt.any():
            raise Fault("read before full", "shared memory is read while a copy into it is under way, or before any")
        return self.data.astype(np.float32)


class Barrier:
    """An mbarrier: a phase ends when ``count`` arrivals and all announced bytes have come."""

    def __init__(self):
        self.count = self.pending = self.bytes = self.phase = 0

    def arrive(self, n: int = 1):
        self.pending -= n
        if self.pending < 0:
            raise Fault("arrival count", f"more than {self.count} arrivals in one phase of a barrier")
        self.settle()

    def settle(self):
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.count


# ---- one program: roles that take turns --------------------------------------------------------------------


class Program:
    """One thread block. Its roles are threads, of which one runs at a time: mostly the one that has waited longest."""

    def __init__(self, ids: tuple, warps: int, chance: random.Random):
        self.ids, self.warps, self.chance = ids, warps, chance
        self.copies: list[Callable[[], None]] = []
        self.roles: list[Role] = []
        self.main = Role(self, "kernel", lambda: None, warps)

    def land_copies(self, all_of_them: bool = False):
        self.chance.shuffle(self.copies)
        while self.copies and (all_of_them or self.chance.random() < 0.5):
            self.copies.pop()()

    def specialize(self, roles: list[Role]):
        self.roles = roles
        for now in range(SWITCHES):
            ready = [role for role in roles if not role.done and role.ready()]
            if not ready:
                if all(role.done for role in roles):
                    self.roles = []
                    return
                if not self.copies:
                    told = "; ".join(f"{r.name} waits for {r.waits}" for r in roles if not r.done)
                    raise Fault("deadlock", told)
                self.land_copies(all_of_them=True)
                continue
            longest = min(ready, key=lambda role: role.last_turn)
            chosen = longest if self.chance.random() < 0.6 else self.chance.choice(ready)
            chosen.last_turn = now
            chosen.turn()
            self.land_copies()
        raise Fault("deadlock", "it does not end")


class Role:
    def __init__(self, program: Program, name: str, work: Callable[[], None], warps: int):
        self.program, self.name, self.work, self.warps = program, name, work, warps
        self.done, self.error, self.waits, self.last_turn = False, None, "", -1
        self.condition: Callable[[], bool] = lambda: True
        self.products: list[Product] = []
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def ready(self) -> bool:
        return self.condition()

    def turn(self):
        if not self.thread.ident:
            self.thread.start()
        self.go.release()
        self.back.acquire()
        if self.error:
            raise self.error

    def _run(self):
        self.go.acquire()
        try:
            _here.role = self
            self.work()
            for product in self.products:
                product.finish()
        except BaseException as error:  # given to the thread that drives the roles
            self.error = error
        self.done = True
        self.back.release()

    def wait_until(self, condition: Callable[[], bool], told: str):
        self.condition, self.waits = condition, told
        if self is self.program.main:
            if not condition():
                self.program.land_copies(all_of_them=True)
            if not condition():
                raise Fault("deadlock", f"{self.name} waits for {told}")
            return
        self.back.release()
        self.go.acquire()


_here = threading.local()


class Product:
    """A matrix product that reads its operands when it is waited for, or when its role ends."""

    def __init__(self, a, b, acc, use_acc):
        self.a, self.b, self.acc, self.use_acc, self.result = a, b, acc, use_acc, None

    shape = property(lambda self: list(_data(self.acc).shape))

    def finish(self) -> Value:
        if self.result is None:
            a = self.a.read() if isinstance(self.a, Memory) else _data(self.a).astype(np.float32)
            product = a @ self.b.read()
            self.result = Value(product + _data(self.acc) if self.use_acc else product)
        return self.result

    def reads(self, spoilt: np.ndarray) -> bool:
        operands = [x for x in (self.a, self.b) if isinstance(x, Memory)]
        return self.result is None and any(np.shares_memory(x.spoilt, spoilt) for x in operands)


# ---- the names that a kernel uses --------------------------------------------------------------------------


class Descriptor:
    def __init__(self, tensor, box):
        self.array = tensor.numpy()
        self.block_shape, self.dtype, self.layout = list(box), self.array.dtype, "boxes"
        self.block_type = types.SimpleNamespace(nbytes=int(np.prod(box)) * self.array.dtype.itemsize)

    @staticmethod
    def from_tensor(tensor, box, layout):
        return Descriptor(tensor, box)

    def parts(self, coordinates):
        """Slices of the tensor and of the box that overlap."""
        inside, own = [], []
        for at, size, n in zip(map(int, coordinates), self.block_shape, self.array.shape, strict=True):
            low, high = min(max(at, 0), n), min(max(at + size, 0), n)
            inside.append(slice(low, high))
            own.append(slice(low - at, high - at) if high > low else slice(0, 0))
        return tuple(inside), tuple(own)


def _copy_in(desc, coordinates, barrier, memory):
    program = _here.role.program
    if any(product.reads(memory.spoilt) for role in (*program.roles, program.main) for product in role.products):
        raise Fault("overwritten", "a copy is started into shared memory that a product still reads")
    memory.spoilt[...] = True
    inside, own = desc.parts(coordinates)

    def land():
        memory.data[...] = 0
        memory.data[own] = desc.array[inside]
        memory.spoilt[...] = False
        barrier.bytes -= desc.block_type.nbytes
        barrier.settle()

    program.copies.append(land)


def _copy_out(desc, coordinates, memory):
    inside, own = desc.parts(coordinates)
    desc.array[inside] = memory.read()[own].astype(desc.dtype)


def _wait(barrier, phase):
    phase = int(_data(phase))
    _here.role.wait_until(lambda: barrier.phase != phase, f"phase {phase} of a barrier with count {barrier.count}")


def _expect(barrier, count):
    barrier.bytes += count
    barrier.arrive()


def _arrive(barrier):
    barrier.arrive()
    _here.role.wait_until(lambda: True, "its turn")  # what others do now may come before its next instruction


def _init(barrier, count):
    barrier.count = barrier.pending = count


def _product(a, b, acc, use_acc=True, is_async=False):
    acc = acc.finish() if isinstance(acc, Product) else acc
    product = Product(a, b, acc, use_acc)
    if not is_async:
        return product.finish()
    _here.role.products.append(product)
    return product


def _product_wait(outstanding, deps):
    products = _here.role.products
    while len(products) > outstanding:
        products.pop(0).finish()
    if any(dep in products for dep in deps if isinstance(dep, Product)):
        raise Fault("read before full", "a product's result is used while it may still be in flight")
    found = [dep.finish() if isinstance(dep, Product) else dep for dep in deps]
    return found[0] if len(found) == 1 else tuple(found)


def _allocate(dtype, shape, layout):
    if layout == "barriers":
        data = np.empty(shape, object)
        for at in np.ndindex(*data.shape):
            data[at] = Barrier()
        return Memory(data, np.zeros(shape, bool), dtype)
    return Memory(np.full(shape, np.nan, dtype), np.ones(shape, bool), dtype)


def _specialize(roles, warps, registers=None):
    program = _here.role.program
    sizes = [program.warps, *warps]
    made = [
        Role(program, f"role {n} ({function.__name__})", lambda f=function, a=arguments: f(*a), sizes[n])
        for n, (function, arguments) in enumerate(roles)
    ]
    before = _here.role
    program.specialize(made)
    _here.role = before


def _load(pointer):
    return Value(pointer.flat[pointer.offset])


def _store(pointer, value, mask=True):
    where = np.broadcast_to(_data(mask), np.shape(pointer.offset))
    pointer.flat[np.asarray(pointer.offset)[where]] = np.broadcast_to(_data(value), where.shape)[where]


class Kernel:
    """What ``@gluon.jit`` makes here: called by another kernel it is a function, and ``kernel[grid](...)`` runs it."""

    seed = 0

    def __init__(self, function):
        self.function, self.__name__ = function, function.__name__

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __getitem__(self, grid):
        def launch(*args, num_warps, **options):
            args = [Pointer(x.view(-1).numpy()) if isinstance(x, torch.Tensor) else x for x in args]
            args = [Value(np.int64(x)) if type(x) is int else x for x in args]
            for ids in itertools.product(*map(range, grid)):
                program = Program(ids, num_warps, random.Random(hash((Kernel.seed, *ids))))
                _here.role = program.main
                self.function(*args, **options)

        return launch


def _names() -> dict:
    numpy = lambda function: lambda *a: Value(function(*map(_data, a)))  # noqa: E731
    gl = types.SimpleNamespace(
        constexpr=lambda x: x, float32=np.float32, float16=np.float16, int64=np.int64, bfloat16="bf16", int32=np.int32,
        program_id=lambda axis: Value(np.int64(_here.role.program.ids[axis])), num_warps=lambda: _here.role.warps,
        NVMMADistributedLayout=lambda *a: "wgmma", SliceLayout=lambda *a: "slice",
        DotOperandLayout=lambda *a: "operand",
        NVMMASharedLayout=types.SimpleNamespace(get_default_for=lambda *a: "shared"),
        zeros=lambda shape, dtype, layout: Value(np.zeros(shape, dtype)),
        full=lambda shape, x, dtype, layout: Value(np.full(shape, _data(x), dtype)),
        arange=lambda a, b, layout: Value(np.arange(a, b)), convert_layout=lambda x, layout, assert_trivial=False: x,
        where=numpy(np.where), maximum=numpy(np.maximum), minimum=numpy(np.minimum), exp2=numpy(np.exp2),
        log2=numpy(np.log2), max=lambda x, axis: Value(x.data.max(axis)), sum=lambda x, axis: Value(x.data.sum(axis)),
        cdiv=lambda a, b: Value(-(-_data(a) // b)), static_range=range, load=_load, store=_store,
        allocate_shared_memory=_allocate, warp_specialize=_specialize,
    )  # fmt: skip
    mbarrier = types.SimpleNamespace(
        MBarrierLayout=lambda: "barriers",
        init=_init,
        wait=_wait,
        expect=_expect,
        arrive=_arrive,
    )
    return {
        "gl": gl, "gluon": types.SimpleNamespace(jit=Kernel), "mbarrier": mbarrier, "TensorDescriptor": Descriptor,
        "copy_in": _copy_in, "copy_out": _copy_out, "store_wait": lambda n: None, "block_barrier": lambda: None,
        "fence_async_shared": lambda: None, "warpgroup_mma": _product, "warpgroup_mma_wait": _product_wait,
    }  # fmt: skip


def load(text: str, name: str) -> Callable:
    """The host function ``name`` of a lab's text, with every Gluon kernel in it emulated."""
    module = types.ModuleType("flashkit.runtime.hopper")
    vars(module).update(_names())
    before = sys.modules[module.__name__]
    sys.modules[module.__name__] = module
    try:
        return lab_cells.load(text, name)
    finally:
        sys.modules[module.__name__] = before
