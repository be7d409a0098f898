"""How Calls and Outcomes cross a socket as data that can only be read, never executed: JSON and raw numbers.

A frame is two lengths, a JSON object and the raw bytes of its arrays. The reader trusts nothing: lengths are capped
before memory is taken, array types are from a short list, and every field of an Outcome is checked or refused. A text
that a function returned, such as CUDA C++, crosses as a text, in full or not at all.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from flashkit.instruments.record import Finding, Traffic
from flashkit.runtime.call import LIST_LIMIT as ENTRIES
from flashkit.runtime.call import TEXT_LIMIT, TEXTS, Argument, Call, Outcome, Problem, Returned

LENGTHS = struct.Struct(">IQ")
HEADER_LIMIT = 2**22
BODY_LIMIT = 2**26
SEND_SECONDS = 60.0  # a reader that does not read
SAID_LIMIT = 4000  # characters of any one message; a returned text has a limit of its own
LIST_LIMIT = 64
VERDICTS = ("crashed", "refused", "wrong")
KINDS = ("outside", "unwritten", "uninitialised", "race", "undefined")


class WireError(Exception):
    """The other side is gone, too slow, or sent something that is no frame."""


def send(channel: socket.socket, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
    """Sends one frame. The arrays' names, dtypes and shapes travel in the header as ``arrays``."""
    arrays = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    described = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": described}).encode()
    body = b"".join(array.tobytes() for array in arrays.values())
    channel.settimeout(SEND_SECONDS)
    channel.sendall(LENGTHS.pack(len(text), len(body)) + text + body)


def receive(channel: socket.socket, until: float = math.inf) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads one frame before the moment ``until`` of ``time.monotonic()``. Raises WireError, and nothing else."""
    header_length, body_length = LENGTHS.unpack(_exactly(channel, LENGTHS.size, until))
    if header_length > HEADER_LIMIT or body_length > BODY_LIMIT:
        raise WireError("a frame larger than any answer")
    text, body = _exactly(channel, header_length, until), _exactly(channel, body_length, until)
    try:
        header = json.loads(text)
        return header, _arrays(header.pop("arrays"), body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
        raise WireError(f"no frame: {type(error).__name__}") from None


def _exactly(channel: socket.socket, length: int, until: float) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        left = until - time.monotonic()
        if left <= 0:
            raise WireError("too slow")
        channel.settimeout(None if left == math.inf else left)
        try:
            part = channel.recv(min(length - len(parts), 1 << 20))
        except TimeoutError:
            raise WireError("too slow") from None
        except OSError as error:
            raise WireError(type(error).__name__) from None
        if not part:
            raise WireError("closed")
        parts += part
    return bytes(parts)


def _arrays(described: list, body: bytes) -> dict[str, np.ndarray]:
    found, start = {}, 0
    for name, dtype, shape in described:
        if dtype not in ("float64", "float32", "float16") or len(shape) > 8 or min(shape, default=0) < 0:
            raise ValueError("no array of ours")
        size = math.prod(map(int, shape)) * np.dtype(dtype).itemsize
        found[str(name)] = np.frombuffer(body[start : start + size], dtype).reshape(shape).copy()
        start += size
    if start != len(body):
        raise ValueError("bytes left over")
    return found


# ---- calls ----------------------------------------------------------------------------------------------


def call_header(call: Call) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A call as a frame's header and arrays."""
    header = {
        "tensors": [[name, a.dtype, a.layout] for name, a in call.tensors.items()],
        "options": dict(call.options),
        "returns": [[r.name, list(r.shape), r.dtype] for r in call.returns],
        "seconds": call.seconds,
        "upstream": call.upstream,
        "dry": call.dry,
    }
    return header, {name: np.asarray(a.values, np.float64) for name, a in call.tensors.items()}


def read_call(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Call:
    return Call(
        {name: Argument(arrays[name], dtype, layout) for name, dtype, layout in header["tensors"]},
        header["options"],
        tuple(Returned(name, tuple(shape), dtype) for name, shape, dtype in header["returns"]),
        header["seconds"],
        header["upstream"],
        header["dry"],
    )


# ---- outcomes -------------------------------------------------------------------------------------------


def outcome_header(outcome: Outcome) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """An outcome as a frame's header and arrays; launches stay behind, they hold functions."""
    header = {
        "problem": problem_header(outcome.problem),
        "traffic": {name: asdict(t) for name, t in outcome.traffic.items()},
        "findings": [_finding_header(f) for f in outcome.findings[:LIST_LIMIT]],
        "undefined": [_finding_header(f) for f in outcome.undefined[:LIST_LIMIT]],
        "locked": outcome.locked,
        "printed": outcome.printed[:SAID_LIMIT],
        "seconds": outcome.seconds,
        "texts": dict(outcome.texts),
    }
    return header, {name: np.asarray(x, np.float64) for name, x in outcome.outputs.items()}


def problem_header(problem: Problem | None) -> dict[str, Any] | None:
    if problem is None:
        return None
    names = ("verdict", "sentence", "fault", "where", "lineno", "line", "traceback")
    header = {name: getattr(problem, name) for name in names}
    return {**header, "finding": _finding_header(problem.finding)}


def _finding_header(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    integers = {name: _integers(getattr(finding, name)) for name in ("index", "program", "other_program")}
    return {**asdict(finding), **integers}


def _integers(values) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def read_outcome(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], returns: tuple[Returned, ...]) -> Outcome:
    """The outcome that a child claims; outputs count only with exactly the shapes asked for. Raises WireError."""
    try:
        outputs, texts = _read_outputs(arrays, returns), _read_texts(header["texts"], returns)
        whole = len(outputs) + len(texts) == len(returns)
        outcome = Outcome(
            outputs=outputs if whole else {},
            texts=texts if whole else {},
            problem=read_problem(header["problem"]),
            traffic={_text(name): _read_traffic(t) for name, t in list(header["traffic"].items())[:LIST_LIMIT]},
            findings=[_read_finding(f) for f in header["findings"][:LIST_LIMIT]],
            undefined=[_read_finding(f) for f in header["undefined"][:LIST_LIMIT]],
            locked=header["locked"] is True,
            printed=_text(header["printed"]),
            seconds=float(header["seconds"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise WireError(f"no outcome: {type(error).__name__}") from None
    if outcome.problem is None and not whole:
        raise WireError("an outcome without outputs")
    return outcome


def _read_outputs(arrays: Mapping[str, np.ndarray], returns: tuple[Returned, ...]) -> dict[str, np.ndarray]:
    asked = [r for r in returns if r.dtype not in TEXTS and r.name in arrays]
    if any(not _fits(arrays[r.name].shape, r.shape) for r in asked):
        raise ValueError("an output of another shape")
    return {r.name: arrays[r.name].astype(np.float64) for r in asked}


def _fits(shape: tuple[int, ...], asked: tuple[int, ...]) -> bool:
    """Is it the shape that was asked for, where -1 is any length up to the limit?"""
    pairs = zip(shape, asked, strict=True) if len(shape) == len(asked) else [(0, 1)]
    return all(came <= ENTRIES if want == -1 else came == want for came, want in pairs)


def _read_texts(texts: Mapping[str, str], returns: tuple[Returned, ...]) -> dict[str, str]:
    found = {r.name: texts[r.name] for r in returns if r.dtype in TEXTS and r.name in texts}
    if any(type(text) is not str or len(text) > TEXT_LIMIT for text in found.values()):
        raise ValueError("no text, or one beyond the limit")
    return {name: writable(text) for name, text in found.items()}


def read_problem(header: Mapping[str, Any] | None) -> Problem | None:
    if header is None:
        return None
    if header["verdict"] not in VERDICTS:
        raise ValueError("no verdict of a child's")
    texts = {name: _text(header[name]) for name in ("sentence", "fault", "where", "line", "traceback")}
    finding = None if header["finding"] is None else _read_finding(header["finding"])
    return Problem(verdict=header["verdict"], lineno=int(header["lineno"]), finding=finding, **texts)


def _read_traffic(header: Mapping[str, Any]) -> Traffic:
    return Traffic(**{name: max(0, int(header[name])) for name in asdict(Traffic())})


def _read_finding(header: Mapping[str, Any]) -> Finding:
    if header["kind"] not in KINDS:
        raise ValueError("no finding of the meter's")
    return Finding(
        kind=header["kind"],
        tensor=_text(header["tensor"]),
        index=_coordinates(header["index"]),
        program=_coordinates(header["program"]),
        other_program=_coordinates(header["other_program"]),
        kernel=_text(header["kernel"]) if header["kernel"] is not None else None,
        lineno=int(header["lineno"]) if header["lineno"] is not None else None,
        line=_text(header["line"]),
        detail=_text(header["detail"]),
        filename=_text(header["filename"]) if header["filename"] is not None else None,
        access=_text(header["access"]),
        overflow=header["overflow"] is True,
    )


def _coordinates(values) -> tuple[int, ...] | None:
    return None if values is None else tuple(int(value) for value in values[:8])


def _text(value) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return writable(value[:SAID_LIMIT])


def writable(text: str) -> str:
    """The text with "?" for what no file can hold, such as half of a character."""
    return text.encode("utf-8", "replace").decode()
