"""A kernel on the large call of its exercise: buffers, the call itself, and whether its answers stand beside a peer's.

The peer is the course's own kernel: its run in the same dtype sets the tolerance. The reference is PyTorch's in fp32,
or, for outputs that PyTorch does not give, the course's kernel in fp32: no oracle on a CPU could compute 4096 tokens of
32 heads while a learner waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from flashkit.exercises import lab_cells
from flashkit.exercises.contract import Case, Exercise
from flashkit.runtime.placement import TORCH_DTYPES

FACTOR = 2.0  # of the peer's own error
EXACT_TILE = 32  # fp32 tiles need twice the shared memory

Tensors = Mapping[str, torch.Tensor]


def course_kernel(exercise: Exercise) -> Callable | None:
    """The teacher's function; None in a copy of the course without ``solutions/``."""
    return lab_cells.solution(exercise.id, exercise.function) if lab_cells.SOLUTIONS.is_dir() else None


def buffers(exercise: Exercise, case: Case, device: str = "cuda") -> dict[str, torch.Tensor]:
    """The tensors of the large call, in the order of the function's arguments, not filled yet."""
    shapes = exercise.timed.tensors(case)
    return {n: torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device) for n, (shape, dtype) in shapes.items()}


def on_this_gpu(case: Case, arch: int) -> Case:
    """The case with what a call is told of the GPU it runs on: its architecture and how many SMs it has."""
    known = {"arch": arch, "sms": torch.cuda.get_device_properties().multi_processor_count}
    return replace(case, options={**case.options, **known})


def call_of(exercise: Exercise, function: Callable, case: Case, tensors: Tensors) -> Callable[[], tuple]:
    """The call without arguments: gives the outputs, and the gradients where the exercise asks autograd for them.

    An option that the case does not name is that of the exercise's first case.
    """
    like = exercise.call(exercise.cases[0])
    options = {name: case.options.get(name, value) for name, value in like.options.items()}
    wanted = [gradient.name.removeprefix("d") for gradient in like.gradients]

    def once() -> tuple:
        # a view of its own each time: the buffers are refilled in place, which autograd forbids for its leaves
        given = {n: t.detach().requires_grad_(n in wanted) for n, t in tensors.items() if n != like.upstream}
        result = function(*given.values(), **options)
        outputs = result if isinstance(result, tuple) else (result,)
        if not wanted:
            return outputs
        return (*outputs, *torch.autograd.grad(outputs[0], [given[n] for n in wanted], tensors[like.upstream]))

    return once


def names_of(exercise: Exercise) -> list[str]:
    """What :func:`call_of` gives, by name."""
    like = exercise.call(exercise.cases[0])
    return [r.name for r in (*like.returned, *like.gradients) if r.dtype in TORCH_DTYPES]


def disagreement(exercise: Exercise, function: Callable, course: Callable, case: Case, tensors: Tensors) -> str:
    """Why the answers on these tensors are not right, in one sentence; "" when they are."""
    exact = reference(exercise, course, case, {name: t.float() for name, t in tensors.items()})
    peer = call_of(exercise, course, case, tensors)()
    came = call_of(exercise, function, case, tensors)()
    for name, out, low, right in zip(names_of(exercise), came, peer, exact, strict=True):
        error, allowed = _largest(out, right), FACTOR * _largest(low, right) + _step(right, out.dtype)
        if not error <= allowed:  # NaN is not right either
            told = f"{name} is off by {error:.3g}, where the course's kernel is off by {_largest(low, right):.3g}"
            return f"In {case.dtype}, at {case.sizes}, {told} (allowed {allowed:.3g})."
    return ""


def reference(exercise: Exercise, course: Callable, case: Case, tensors: Tensors) -> tuple:
    """The outputs in fp32."""
    case = replace(case, dtype="fp32")
    for torchs in exercise.gpu.peers.values():
        found = call_of(exercise, torchs, case, tensors)()
        if len(found) == len(names_of(exercise)):
            return found
    tiles = {n: min(v, EXACT_TILE) for n, v in case.options.items() if n.startswith("block")}
    return call_of(exercise, course, replace(case, options={**case.options, **tiles}), tensors)()


def _largest(out: torch.Tensor, reference: torch.Tensor) -> float:
    return (out.float() - reference.float()).abs().max().item()


def _step(reference: torch.Tensor, dtype: torch.dtype) -> float:
    """Twice what rounding to ``dtype`` loses near 0.3: the official FlashAttention tests' atol."""
    rounded = reference.to(dtype)
    return 2 * ((rounded + 0.3 - 0.3).float() - rounded.float()).abs().max().item()
