"""Kernels that a submission's process claims to have launched, for :mod:`flashkit.check.choices` to judge.

Only what is compiled counts: the constants are those of the text that the compiler gets, and a choice that was never
launched is worth no less than one that was, as long as the compiler takes it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashkit.check.choices import Candidate, tile_names
from flashkit.grading import compile_apart
from flashkit.grading.compile_apart import NONSENSE
from flashkit.grading.sandbox import Limits
from flashkit.instruments import resources
from flashkit.instruments.resources import AT_ONCE, SECONDS, Resources
from flashkit.runtime.source import CONSTEXPRS

LONGEST = 4000  # characters at the end of a claimed text in which its constants stand
KEPT = f"{CONSTEXPRS} = "  # how the line starts that holds a kernel's constants


@dataclass(frozen=True)
class Claimed:
    """A claim of :func:`flashkit.instruments.compile_gate.describe`, which may hold anything."""

    claim: Mapping[str, Any]

    @property
    def constants(self) -> Mapping[str, Any]:
        """The constants that are plain whole numbers; none where the claim makes no sense."""
        try:
            pairs = _pairs(_constants_line(self.claim))
        except NONSENSE:
            return {}
        return {name: node.value for name, node in pairs.items() if type(getattr(node, "value", None)) is int}

    @property
    def options(self) -> Mapping[str, Any]:
        request = self.claim.get("request")
        options = request.get("options") if isinstance(request, Mapping) else None
        return {n: v for n, v in options.items() if type(v) is int} if isinstance(options, Mapping) else {}

    def relaunched(self, candidate: Candidate) -> Claimed:
        """The same claim with a candidate's constants and launch options; one for no compiler where it breaks."""
        try:
            return self._with(candidate)
        except NONSENSE:
            return Claimed({})

    def _with(self, candidate: Candidate) -> Claimed:
        line, names = _constants_line(self.claim), tile_names(self.constants)
        table = ast.parse(line)
        for name, node in _pairs(line, table).items():
            if name in names:
                node.value = candidate[names.index(name)]
        source, request = self.claim["source"], self.claim["request"]
        options = {**request["options"], "num_warps": candidate[2], "num_stages": candidate[3]}
        text = source["text"].replace(line, ast.unparse(table))
        return Claimed({**self.claim, "source": {**source, "text": text}, "request": {**request, "options": options}})


def _constants_line(claim: Mapping[str, Any]) -> str:
    """Raises one of NONSENSE where there is none, or where it is too long to be a kernel's."""
    lines = [line for line in claim["source"]["text"][-LONGEST:].split("\n") if line.startswith(KEPT)]
    return lines[-1]


def _pairs(line: str, table: ast.Module | None = None) -> dict[str, ast.expr]:
    """Name -> expression of each constant in the line."""
    made = (table or ast.parse(line)).body[0].value
    return {key.value: value for key, value in zip(made.keys, made.values, strict=True)}


def compiler(
    cells: Mapping[str, str], limits: Limits
) -> Callable[[Sequence[tuple[Claimed, int]]], Iterator[Resources]]:
    """What compiles a submission's claims, each in a sandbox of its own. ``cells``: file name -> source."""

    def compile(asked: Sequence[tuple[Claimed, int]]) -> Iterator[Resources]:
        waiting = []
        for number, (kernel, arch) in enumerate(asked):
            for later, later_arch in asked[number + len(waiting) : number + AT_ONCE]:
                waiting.append(compile_apart.start_kernel(later.claim, cells, limits, later_arch, True))
            yield resources.of(waiting.pop(0).result(SECONDS), str(kernel.claim.get("name", "kernel"))[:80], arch)

    return compile
