"""Run one call of a student's function compiled on a GPU: no meter there, only what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from flashkit.runtime import gradients
from flashkit.runtime.call import Call, Outcome
from flashkit.runtime.explain import explain
from flashkit.runtime.placement import place
from flashkit.runtime.runner import from_explanation, invoke, outputs_of


def run_compiled(function: Callable, call: Call) -> Outcome:
    """Call ``function`` once with its tensors on the GPU; what it raises is the outcome's problem."""
    outcome, started = Outcome(), time.perf_counter()
    inputs = {name: place(argument, "cuda") for name, argument in call.tensors.items()}
    gradients.ask(inputs, call)
    try:
        result, derived = invoke(function, inputs, call)
        torch.cuda.synchronize()
    except Exception as error:
        outcome.problem = from_explanation("crashed", explain(error))
    else:
        tensors, outcome.problem = outputs_of(result, derived, call, inputs)
        outcome.outputs = {name: t.detach().double().cpu().numpy() for name, t in (tensors or {}).items()}
    outcome.seconds = time.perf_counter() - started
    return outcome
