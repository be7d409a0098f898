"""What the student's host code asks of PyTorch: uninitialised allocations, writes, ready-made operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ALLOCATORS = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
OPERATORS = {  # products, softmaxes and attention: what a lab's kernel is there to compute
    "mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear", "einsum", "tensordot",
    "_scaled_mm", "_grouped_mm", "_int_mm", "addr", "ger", "outer", "inner", "chain_matmul", "cdist",
    "softmax", "_softmax", "_safe_softmax", "_masked_softmax", "log_softmax", "_log_softmax", "logsumexp",
    "logaddexp", "logcumsumexp",
}  # fmt: skip
ARITHMETIC = {  # on real data: a copy kernel behind these would pass off PyTorch's result as its own
    "add", "sub", "rsub", "mul", "div", "neg", "pow", "sqrt", "rsqrt", "reciprocal", "addcmul", "addcdiv", "lerp",
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sum", "mean", "amax", "max", "cumsum", "sigmoid", "maximum",
}  # fmt: skip
_PREFIXES = (
    "_scaled_dot_product", "scaled_dot_product", "_flash_attention", "_efficient_attention", "_cudnn_attention",
    "_native_multi_head_attention", "_transformer_encoder_layer", "convolution", "conv", "mkldnn",
)  # fmt: skip


class TorchWatch(TorchDispatchMode):
    """Tell `allocated(tensor)` and `wrote(tensor)`, and list the operators by name that compute for the kernel.

    Paused while a kernel runs: the interpreter uses PyTorch to move arguments.
    """

    def __init__(self, allocated: Callable, wrote: Callable, operators: list[str], origins: Origins):
        super().__init__()
        self.origins = origins
        self.allocated, self.wrote, self.operators = allocated, wrote, operators
        self.paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: else PyTorch imports its compiler, which takes a second, to keep it away. Nothing compiles here."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not self.paused:
            self._observe(func, args, kwargs or {}, result)
        return result

    def _observe(self, func, args, kwargs, result):
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "aten" and (name in OPERATORS or name.startswith(_PREFIXES) or _computes(name, args)):
            self.operators.append(name)
        if name in ALLOCATORS and isinstance(result, torch.Tensor) and kwargs.get("out") is None:
            if result.numel() and result.device.type != "meta":
                poison(result)
                self.allocated(result)
        self.origins.follow(func, args, kwargs, result)
        if torch.Tag.inplace_view in func.tags:  # transpose_, set_, resize_: nothing is written
            return
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[place] if place < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, (list, tuple)) else [value]:
                    if isinstance(tensor, torch.Tensor):
                        self.wrote(tensor)


class Origins:
    """Where real numbers come from: storages that hold only what PyTorch made of the call's inputs under our eyes.

    What NumPy, another thread or an earlier call computed is not among them, nor what is copied from it.
    """

    def __init__(self, made: Callable[[list[torch.Tensor]], None]):
        self._made = made  # told of new tensors, so that what is written past PyTorch can be noticed
        self._known: dict[int, object] = {}  # the storages are held, so that no address is given out twice

    def know(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._known[storage.data_ptr()] = storage

    def forget(self, tensor: torch.Tensor) -> None:
        self._known.pop(tensor.untyped_storage().data_ptr(), None)

    def knows(self, tensor: torch.Tensor) -> bool:
        """True also of integers and of single numbers: they are bookkeeping."""
        plain = not tensor.is_floating_point() or tensor.numel() <= 1
        return plain or tensor.untyped_storage().data_ptr() in self._known

    def follow(self, func, args, kwargs, result) -> None:
        """A new storage, or one written to, is known if all that the operator read is."""
        written, read = [], []
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            (written if is_written else read).extend(_tensors(value))
        old = {t.untyped_storage().data_ptr() for t in written + read}
        fresh = [t for t in _tensors(result) if t.untyped_storage().data_ptr() not in old]
        if not all(map(self.knows, read)):
            for tensor in written:
                self.forget(tensor)
            return
        for tensor in fresh + written * (func._schema.name in WHOLE):
            self.know(tensor)
        self._made([t for t in fresh if t.is_floating_point() and 1 < t.numel() <= SMALL])


SMALL = 2**20
WHOLE = ("aten::copy_", "aten::zero_", "aten::fill_")  # nothing of what was there before is left


def _tensors(value) -> list[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [x for x in values if isinstance(x, torch.Tensor) and x.layout == torch.strided]


def _computes(name: str, args) -> bool:
    """Arithmetic on a tensor of real numbers; on integers, or on one number, it is bookkeeping."""
    real = any(isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() > 1 for x in args)
    return real and name.rstrip("_") in ARITHMETIC


def poison(tensor: torch.Tensor) -> None:
    """Fill with what a kernel must not read: NaN, or the largest number of an integer type."""
    if tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() > 1):
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    elif tensor.is_floating_point():  # all ones is a NaN in the fp8 formats that have one
        tensor.view(torch.uint8).fill_(0xFF)
    else:
        signed = getattr(torch, f"int{8 * tensor.element_size()}")
        tensor.view(signed).fill_(torch.iinfo(signed).max)


class Snapshots:
    """Copies of tensors, by which writes that pass PyTorch by (NumPy, ctypes) are noticed afterwards."""

    def __init__(self):
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def renew(self, tensors: list[torch.Tensor]) -> None:
        """Copy these tensors, and again each one kept so far that shares a storage with them."""
        if not tensors:
            return
        storages = {t.untyped_storage().data_ptr() for t in tensors}
        stale = [t for t, _ in self._kept if t.untyped_storage().data_ptr() in storages]
        self._kept = [(t, c) for t, c in self._kept if t.untyped_storage().data_ptr() not in storages]
        unique = {(t.data_ptr(), t.shape, t.stride(), t.dtype): t.detach() for t in stale + tensors}
        self._kept += [(t, t.clone()) for t in unique.values() if t.element_size() <= 8 and not t.is_meta]

    def changes(self):
        """(tensor, bool array) of every kept tensor with elements whose bits are not the copy's."""
        for tensor, copy in self._kept:
            bits = getattr(torch, f"int{8 * tensor.element_size()}")
            changed = (tensor.view(bits) != copy.view(bits)).cpu().numpy()
            if changed.any():
                yield tensor, changed
