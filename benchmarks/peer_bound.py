"""How far from the truth a half-precision output may be: relative to a peer's own error on the same inputs."""

from __future__ import annotations

import torch

FACTOR = 1.5  # of the peer's error
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # half a unit in the last place of 1


def judged(came: torch.Tensor, reference: torch.Tensor, low: torch.Tensor) -> dict:
    """Its error, the peer's (``low``), what is allowed, and the verdict.

    Half of what rounding the largest element may cost is allowed beyond the peer's share, since a peer can be lucky.
    """
    error, theirs = ((y.double() - reference.double()).abs().max().item() for y in (came, low))
    allowed = FACTOR * theirs + 0.5 * ROUNDING[came.dtype] * reference.abs().max().item()
    return {"error": error, "peer": theirs, "allowed": allowed, "right": bool(error <= allowed)}
