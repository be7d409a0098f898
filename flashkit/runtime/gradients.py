"""What autograd makes of a call: the gradients of its first output with respect to its tensor arguments."""

from __future__ import annotations

import torch

from flashkit.runtime.call import Call


class NoGradient(Exception):
    """The output cannot be differentiated; the text tells the student why."""


def ask(inputs: dict[str, torch.Tensor], call: Call) -> None:
    """Make the arguments whose gradients the call wants ask for them."""
    for gradient in call.gradients:
        inputs[gradient.name.removeprefix("d")].requires_grad_()


def take(output, inputs: dict[str, torch.Tensor], call: Call) -> tuple[torch.Tensor, ...]:
    """The gradients in the order of ``call.gradients``; none if the output is not what the call expects.

    Raises NoGradient where autograd has nothing to differentiate.
    """
    upstream, first = inputs[call.upstream], call.returned[0].name
    if type(output) is not torch.Tensor or output.shape != upstream.shape:
        return ()
    if output.grad_fn is None:
        raise NoGradient(
            f"{first} does not depend on the inputs as far as autograd knows: return what your Function's apply gives."
        )
    names = [gradient.name.removeprefix("d") for gradient in call.gradients]
    gradients = torch.autograd.grad(output, [inputs[name] for name in names], upstream, allow_unused=True)
    missing = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
    if missing:
        raise NoGradient(
            f"backward gave no gradient for {', '.join(missing)}: return one for each argument of forward, in order."
        )
    return gradients
