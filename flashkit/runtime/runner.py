"""Run one call of a student's function under the meter and judge everything but whether the answer is right."""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch

from flashkit.instruments import dry_run
from flashkit.instruments.hooks import interpreting
from flashkit.instruments.meter import Meter
from flashkit.instruments.record import Finding, Launch, MeterStop, Record
from flashkit.instruments.schedule import schedule
from flashkit.runtime import gradients, guard
from flashkit.runtime.call import LIST_LIMIT, TEXT_LIMIT, TEXTS, Call, Outcome, Problem, Returned
from flashkit.runtime.capture import capture
from flashkit.runtime.deadline import DeadlineExceeded, deadline
from flashkit.runtime.explain import Explanation, explain
from flashkit.runtime.placement import TORCH_DTYPES, place
from flashkit.runtime.program import NoProgram, recorded
from flashkit.runtime.source import is_installed

PLAIN = ("number", "list", *TEXTS)  # what a function may return that no kernel has to have stored


def run(function: Callable, call: Call, undefined: float | None = math.nan, show: bool = True) -> Outcome:
    """Call ``function`` once in this process, interpreted and metered.

    ``undefined`` is what masked-off lanes of a load without ``other`` hold (None: zeros, as the interpreter has it).
    Never raises for what student code does; KeyboardInterrupt, the user's own, passes through.
    """
    if call.dry:
        return _noted(function, call, show)
    outcome, started = Outcome(), time.perf_counter()
    inputs = {name: place(argument) for name, argument in call.tensors.items()}
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    gradients.ask(inputs, call)
    result, derived, meter = None, (), Meter(names=inputs, undefined=undefined)
    metered = bool(inputs) or interpreting()  # plain numbers and texts can be asked for where Triton compiles, too
    # NumPy's warnings point into Triton's interpreter; the report says where a NaN shows
    with capture(show) as printed, np.errstate(all="ignore"):
        try:
            guard.refuse_oracle_globals(function)
            with guard.no_oracle_imports(), deadline(call.seconds), meter if metered else contextlib.nullcontext():
                result, derived = invoke(function, inputs, call)
                result = recorded(result) if [r.dtype for r in call.returns] == ["program"] else result
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            outcome.problem = problem_of(error, call.seconds)
    tensors, shape_problem = (None, None) if outcome.problem else outputs_of(result, derived, call, inputs)
    by_kernel = (
        {r.name: tensors[r.name] for r in call.returns if r.name in tensors and r.dtype not in PLAIN} if tensors else {}
    )
    record = meter.finish(outputs=by_kernel)
    _copy_record(record, outcome)
    outcome.problem = outcome.problem or _refused(record) or shape_problem or _found(record)
    if by_kernel and not outcome.problem:
        outcome.problem = _not_from_kernel(record, by_kernel) or _changed_inputs(inputs, before)
    if tensors:
        outcome.texts = {name: text for name, text in tensors.items() if isinstance(text, str)}
        arrays = {name: t for name, t in tensors.items() if name not in outcome.texts}
        outcome.outputs = {name: t.detach().double().cpu().numpy() for name, t in arrays.items()}
        outcome.outputs |= {r.name: schedule(record) for r in call.returns if r.dtype == "schedule"}
    outcome.printed, outcome.seconds = printed.text, time.perf_counter() - started
    return outcome


def _noted(function: Callable, call: Call, show: bool) -> Outcome:
    """The launches that the function would make of tensors that have shapes and no memory; what it returns is not read.

    For kernels that no interpreter takes: all that can be done with them without a GPU is to compile them.
    """
    outcome, started = Outcome(), time.perf_counter()
    inputs = {
        name: torch.empty(a.values.shape, dtype=TORCH_DTYPES[a.dtype], device="meta")
        for name, a in call.tensors.items()
    }
    with capture(show) as printed:
        try:
            guard.refuse_oracle_globals(function)
            with guard.no_oracle_imports(), deadline(call.seconds):
                outcome.launches = dry_run.launches(function, *inputs.values(), **call.options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            outcome.problem = problem_of(error, call.seconds)
    if not outcome.problem:
        outcome.problem = _not_gluon(outcome.launches)
    outcome.printed, outcome.seconds = printed.text, time.perf_counter() - started
    return outcome


def _not_gluon(launches: list[Launch]) -> Problem | None:
    if not launches:
        return Problem("refused", "No kernel was launched: launch yours with kernel[grid](...).")
    other = next((launch.name for launch in launches if not getattr(launch.kernel, "is_gluon", bool)()), None)
    said = f"`{other}` is a kernel of Triton's: this exercise is about Gluon, where a kernel is marked with @gluon.jit."
    return Problem("refused", said) if other else None


def invoke(function: Callable, inputs: dict[str, torch.Tensor], call: Call) -> tuple[object, tuple]:
    """What the function returns, and the gradients of its first output where the call asks for them."""
    passed = [tensor for name, tensor in inputs.items() if name != call.upstream]
    result = function(*passed, **call.options)
    return result, gradients.take(_first(result), inputs, call) if call.upstream else ()


def _copy_record(record: Record, outcome: Outcome) -> None:
    outcome.traffic, outcome.launches = record.traffic, record.launches
    outcome.undefined, outcome.locked, outcome.findings = record.undefined, record.locked, record.findings


# ---- what student code raised ---------------------------------------------------------------------------


def problem_of(error: BaseException, seconds: float) -> Problem:
    """What to tell of an exception that student code raised under a limit of ``seconds``."""
    stop = _cause(error, MeterStop)
    if stop is not None:
        return from_finding(stop.finding)
    if isinstance(error, NoProgram):
        return Problem("wrong", str(error), lineno=error.line, line=error.text)
    underived = _cause(error, gradients.NoGradient)
    if underived is not None:
        return Problem("wrong", str(underived))
    refusal = _cause(error, guard.Refused)
    if refusal is not None:
        return Problem("refused", str(refusal))
    if _cause(error, DeadlineExceeded) is not None:
        where, lineno, line = _student_frame(error)
        sentence = f"It had not ended after {seconds:g} s: is there a loop that never ends?"
        return Problem("crashed", sentence, where=where, lineno=lineno, line=line)
    if isinstance(error, SystemExit):
        return Problem("crashed", "It called exit(): return the output instead.")
    return from_explanation("crashed", explain(error))


def from_explanation(verdict: str, told: Explanation) -> Problem:
    return Problem(verdict, told.sentence, "", told.where, told.lineno or 0, told.line, told.traceback)


def from_finding(finding: Finding) -> Problem:
    where = f"kernel {finding.kernel}, program {finding.program}" if finding.kernel else ""
    verdict = "crashed" if finding.kind == "outside" else "wrong"
    return Problem(verdict, finding.detail, where=where, lineno=finding.lineno or 0, line=finding.line, finding=finding)


def _cause(error: BaseException | None, kind: type) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _student_frame(error: BaseException) -> tuple[str, int, str]:
    """The innermost frame of the original error that is neither flashkit's nor an installed package's."""
    first = _cause(error, DeadlineExceeded)
    frames = traceback.extract_tb(first.__traceback__)
    own = [f for f in frames if not is_installed(f.filename)]
    return (own[-1].name, own[-1].lineno or 0, own[-1].line or "") if own else ("", 0, "")


# ---- what came back -------------------------------------------------------------------------------------


def outputs_of(result, derived, call: Call, inputs) -> tuple[dict | None, Problem | None]:
    """What the function returned, then what autograd derived from it."""
    tensors, problem = _outputs_of(result, call.returned, inputs)
    if problem or not call.gradients:
        return tensors, problem
    of_inputs, problem = _outputs_of(derived, call.gradients, inputs)
    return (None, problem) if problem else ({**tensors, **of_inputs}, None)


def _first(result):
    return result[0] if isinstance(result, (tuple, list)) and result else result


def _outputs_of(result, expected: tuple[Returned, ...], inputs) -> tuple[dict | None, Problem | None]:
    """The returned tensors by name, or the one sentence that says why they cannot be used."""
    names = ", ".join(r.name for r in expected)
    alone = len(expected) == 1 and expected[0].dtype == "list"
    values = list(result) if isinstance(result, (tuple, list)) and not alone else [result]
    if result is None:
        return None, Problem("wrong", f"The function returned nothing: end it with `return {names}`.")
    if len(values) != len(expected):
        return None, Problem("wrong", f"Expected {len(expected)} output(s) ({names}), but {len(values)} came back.")
    for value, want in zip(values, expected, strict=True):
        problem = _unlike(value, want, inputs)
        if problem:
            return None, problem
    return {want.name: _as_tensor(value, want) for value, want in zip(values, expected, strict=True)}, None


def _as_tensor(value, want: Returned) -> torch.Tensor | str:
    """Numbers and lists as float64; an empty list keeps its width."""
    if want.dtype not in ("number", "list"):
        return value
    return torch.tensor(value, dtype=torch.float64).reshape((-1, *want.shape[1:]) if want.dtype == "list" else ())


def _unlike(value, want: Returned, inputs) -> Problem | None:
    if want.dtype == "number":
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        came = f"{type(value).__name__}: {value!r:.40}"
        return None if plain else Problem("wrong", f"{want.name} must be a plain number, but it is a {came}.")
    if want.dtype in TEXTS:
        return _no_text(value, want)
    if want.dtype == "list":
        return _no_list(value, want)
    if type(value) is not torch.Tensor:
        return Problem("wrong", f"{want.name} must be a torch.Tensor, but it is a {type(value).__name__}.")
    if value.device.type != next(iter(inputs.values())).device.type:
        return Problem("wrong", f"{want.name} must be on the inputs' device, but it is on {value.device}.")
    if tuple(value.shape) != want.shape:
        return Problem("wrong", f"{want.name} must have shape {want.shape}, but it has {tuple(value.shape)}.")
    if value.dtype != TORCH_DTYPES[want.dtype]:
        came = str(value.dtype).removeprefix("torch.")
        return Problem("wrong", f"{want.name} must be {want.dtype}, but it is {came}.")
    for name, tensor in inputs.items():
        if value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() and value.numel():
            return Problem("refused", f"{want.name} is a view of the input {name}: allocate it with torch.empty.")
    return None


def _no_text(value, want: Returned) -> Problem | None:
    if type(value) is not str:
        came = f"{type(value).__name__}: {value!r:.40}"
        return Problem("wrong", f"{want.name} must be a text, but it is a {came}.")
    if len(value) > TEXT_LIMIT:
        return Problem("wrong", f"{want.name} has {len(value):,} characters; at most {TEXT_LIMIT:,} are taken.")
    return None


def _no_list(value, want: Returned) -> Problem | None:
    width = want.shape[1]
    if not isinstance(value, (list, tuple)):
        came = f"{type(value).__name__}: {value!r:.40}"
        return Problem("wrong", f"{want.name} must be a list, but it is a {came}.")
    if len(value) > LIST_LIMIT:
        return Problem("wrong", f"{want.name} has {len(value):,} entries; at most {LIST_LIMIT:,} are taken.")
    for number, row in enumerate(value):
        entries = list(row) if isinstance(row, (list, tuple)) else [row]
        if len(entries) != width or any(type(x) not in (int, float) for x in entries):
            came = f"{row!r:.40}"
            return Problem("wrong", f"Entry {number} of {want.name} must be {width} plain numbers, but it is {came}.")
    return None


def _refused(record: Record) -> Problem | None:
    if record.foreign and not record.torch_operators:
        name, lineno = next(iter(record.foreign.items()))
        return Problem("refused", guard.FOREIGN_NUMBERS.format(name=name), lineno=lineno)
    if not record.torch_operators:
        return None
    called = ", ".join(dict.fromkeys(record.torch_operators))
    return Problem("refused", f"It calls PyTorch's {called}. {guard.REFUSED_OPERATORS}")


def _found(record: Record) -> Problem | None:
    """The first thing the meter found wrong; unwritten elements come last, since they often follow from others."""
    ordered = sorted(record.findings, key=lambda finding: finding.kind == "unwritten")
    return from_finding(ordered[0]) if ordered else None


def _not_from_kernel(record: Record, tensors: dict[str, torch.Tensor]) -> Problem | None:
    if not record.launches:
        return Problem("refused", "No Triton kernel was launched: launch yours with kernel[grid](...).")
    for name, tensor in tensors.items():
        by_kernel = record.written_by_kernel(tensor)
        if not by_kernel.all():
            index = tuple(int(i) for i in np.argwhere(~by_kernel)[0])
            spelled = ", ".join(map(str, index))
            return Problem("refused", f"{name}[{spelled}] was not stored by a kernel but computed outside one.")
    return None


def _changed_inputs(inputs, before) -> Problem | None:
    for name, tensor in inputs.items():
        if not torch.equal(tensor, before[name]):
            return Problem("wrong", f"It changes its input {name}: inputs are read only.")
    return None
