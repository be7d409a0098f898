"""One sentence for what Python, Triton's interpreter or Triton's compiler says about a beginner's mistake.

Each rule is a pattern for "ErrorType: message" and a function that makes the sentence; the first that answers wins.
The messages are those of triton 3.6 to 3.9, torch 2.10 and newer, NumPy 2 and Python 3.11 to 3.13.
"""

from __future__ import annotations

import ast
import difflib
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from flashkit.runtime.source import Line


@dataclass(frozen=True)
class Evidence:
    """What is known of an error: its type and message, the student's line, the lines of the function it is in."""

    error: str
    message: str
    line: Line | None = None
    function: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        return self.line.text if self.line else ""

    @property
    def tree(self) -> ast.FunctionDef | None:
        """The function's syntax tree; its line numbers count from 1 in ``function``."""
        try:
            body = ast.parse(textwrap.dedent("\n".join(line.text for line in self.function))).body
        except SyntaxError:
            return None
        return body[0] if body and isinstance(body[0], ast.FunctionDef) else None

    @property
    def in_kernel(self) -> bool:
        return bool(self.tree) and any("jit" in ast.unparse(d) for d in self.tree.decorator_list)

    def in_call(self, callee: str) -> set[str]:
        """Names used in the arguments of a call such as ``arange`` on the student's line; in the line if none is."""
        at = self.line.lineno - self.function[0].lineno + 1 if self.line and self.function else 0
        nodes = [n for n in ast.walk(self.tree or ast.Module([], [])) if getattr(n, "lineno", 0) == at]
        calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith(callee)]
        return {n.id for top in calls or nodes for n in ast.walk(top) if isinstance(n, ast.Name)}

    def plain_parameters(self) -> list[str]:
        """Parameters that are not marked ``tl.constexpr``."""
        arguments = self.tree.args.args if self.tree else []
        return [a.arg for a in arguments if not a.annotation or "constexpr" not in ast.unparse(a.annotation)]


@dataclass(frozen=True)
class Said:
    """A sentence, and the line it is about where that is not the line the error was raised in."""

    sentence: str
    line: Line | None = None


Maker = Callable[[Evidence, re.Match], "Said | str | None"]
BLANK = "This blank is not filled in yet: replace it by your own code."
FOREIGN = re.compile(r"\b(torch|np|numpy)\.(?!(?:inf|nan|pi|e)\b)(\w+)")  # those constants a kernel may use
RULES: list[tuple[re.Pattern, Maker]] = []


def say(evidence: Evidence) -> Said | None:
    """The sentence of the first rule that knows this error; None when no rule does."""
    said_by = f"{evidence.error}: {evidence.message}"
    for pattern, maker in RULES:
        if (match := pattern.search(said_by)) and (said := maker(evidence, match)):
            return Said(said) if isinstance(said, str) else said
    return None


def rule(pattern: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        RULES.append((re.compile(pattern, re.DOTALL), maker))
        return maker

    return register


def _tl_names() -> list[str]:
    return [name for name in dir(sys.modules.get("triton.language")) if not name.startswith("_")]


def _close(name: str, known: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, 1, 0.7)), None)


# ---- the blank -----------------------------------------------------------------------------------------


@rule(r"[Ee]llipsis|NotImplementedError|AST node type: Raise")
def blank(e: Evidence, match: re.Match) -> Said | None:
    unfilled = r"=\s*\.\.\.\s*(#.*)?$|^\s*\.\.\.\s*(#.*)?$|raise NotImplementedError"
    lines = [line for line in e.function if re.search(unfilled, line.text)] or [e.line] * ("NotImpl" in e.text)
    if lines:
        return Said(BLANK, lines[0])
    if "AST node type: Raise" in e.message:
        return Said("A kernel cannot `raise`: check the arguments in the function that launches it.")
    return None


# ---- what a kernel may not hold ------------------------------------------------------------------------


@rule(r"AST node type: (Break|Continue)\b")
def break_in_a_loop(e: Evidence, match: re.Match) -> str:
    word = match[1].lower()
    return (
        f"`{word}` cannot be compiled for a GPU: give the loop its exact bounds, or switch off what must not count "
        "with a mask or `tl.where`."
    )


@rule(r"unsupported operand type\(s\) for @: 'tensor'|MatMult")
def matrix_product(e: Evidence, match: re.Match) -> str:
    return "A kernel has no `@`: write the product of two tiles as `tl.dot(a, b)`."


@rule(r"`return` statements inside")
def return_in_a_loop(e: Evidence, match: re.Match) -> str:
    return "`return` inside a loop cannot be compiled: give the loop its exact bounds and return after it."


@rule(r"'(List|Tuple|Name|Dict|Set)' object has no attribute 'func'")
def loop_over_a_list(e: Evidence, match: re.Match) -> str | None:
    if not re.match(r"\s*for\b.*\bin\b", e.text):
        return None
    return (
        "A `for` in a kernel runs over `range(...)` or `tl.static_range(...)` only, not over a Python list or tuple: "
        "write the steps out one by one."
    )


@rule(r"AttributeError|'append' is not in list|TypeError")
def python_list(e: Evidence, match: re.Match) -> str | None:
    found = re.search(r"\b(\w+)\.(append|extend|insert|pop)\(", e.text)
    if not found or not e.in_kernel:
        return None
    return (
        f"`{found[1]}` is a Python list, which a kernel cannot grow: keep one running tensor and update it in the "
        "loop, or write each part to memory with `tl.store`."
    )


@rule(r"__setitem__ is not supported|'tensor' object does not support item|unsupported tensor index|not iterable")
def index_assignment(e: Evidence, match: re.Match) -> str | None:
    if "not iterable" in e.message and not (e.in_kernel and re.search(r"\w\[", e.text)):
        return None
    return (
        "A tensor in a kernel has no single elements to read or set with [ ], and a kernel has no Python lists: select "
        "with `tl.where` or a mask, or index memory by pointers."
    )


@rule(r"tuple comprehensions|AST node type: (ListComp|Dict|Set|DictComp|SetComp|GeneratorExp)")
def comprehension(e: Evidence, match: re.Match) -> str:
    return (
        "Python lists, dicts and comprehensions do not exist in a compiled kernel: make one tensor with `tl.arange` "
        "and work on all its elements at once."
    )


@rule(r".")
def torch_in_a_kernel(e: Evidence, match: re.Match) -> Said | None:
    """Whatever the message: a name of torch or NumPy on the failing line of a kernel is the cause."""
    referenced = re.search(r"Unsupported function referenced: <(?:\S+) '?(?:torch\.)?([\w.]+)", e.message)
    used = FOREIGN.search(e.text)
    line = e.line
    if not used and e.in_kernel and re.search(r"builtin_function_or_method|torch\.|ndarray", e.message):
        hits = [(hit, at) for at in e.function if (hit := FOREIGN.search(at.text))]
        used, line = hits[0] if hits else (None, line)
    if not used or not (referenced or e.in_kernel):
        return None
    package, name = used.groups()
    known = _tl_names()
    instead = f"use `tl.{name}`" if name in known else "use a function of `tl`, or do it outside the kernel"
    owner = "PyTorch" if package == "torch" else "NumPy"
    return Said(f"`{package}.{name}` is {owner}, which does not run inside a kernel: {instead}.", line)


@rule(r"Unsupported function referenced: <(?:function|class) '?([\w.]+)")
def helper_without_jit(e: Evidence, match: re.Match) -> str:
    name = match[1].split(".")[-1]
    return f"The kernel calls `{name}`, a plain Python function: write `@triton.jit` above `def {name}`."


@rule(r"Cannot access global variable (\w+)")
def plain_global(e: Evidence, match: re.Match) -> str:
    name = match[1]
    return (
        f"`{name}` is a plain global variable, which a kernel cannot read: pass it as an argument, or write "
        f"`{name} = tl.constexpr(...)` where it is defined."
    )


@rule(r"nested function definition")
def nested_function(e: Evidence, match: re.Match) -> str:
    return "A function cannot be defined inside a kernel: define it outside, with `@triton.jit` above it."


@rule(r"Boolean value of Tensor|truth value of an array")
def if_on_a_tensor(e: Evidence, match: re.Match) -> str:
    return "This condition has many values, one for each element: use `tl.where(condition, a, b)` or a mask."


@rule(r"AST node type: (\w+)")
def unsupported_syntax(e: Evidence, match: re.Match) -> str:
    return f"This line uses Python syntax ({match[1]}) that a kernel cannot hold: write it with `tl` functions."


# ---- types and shapes ----------------------------------------------------------------------------------


@rule(r"Input shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)")
def small_dot(e: Evidence, match: re.Match) -> str:
    m, n, k = match.groups()
    least = ", ".join(f"{name} at least {value}" for name, value in zip("MNK", (m, n, k), strict=True) if value != "1")
    return (
        f"`tl.dot` multiplies (M, K) by (K, N), and the tensor cores need {least} here: use tiles that large and "
        "mask what is too much."
    )


@rule(r"Loop-carried variable (\w+) has initial type (.+?) but is re-assigned to (.+?) in loop")
def loop_carried_type(e: Evidence, match: re.Match) -> Said:
    name, before, after = match[1], _type(match[2]), _type(match[3])
    sentence = (
        f"`{name}` is {before} before the loop and becomes {after} in it: start it with the type and shape that the "
        "loop gives it, such as `tl.zeros([...], tl.float32)`, or convert inside with `.to(...)`."
    )
    return Said(sentence, _assignment(e, name))


@rule(r"initial value for `(\w+)` is of type (.+?), but the (?:then|else) block redefines it as ([^'\"]+)")
def branch_type(e: Evidence, match: re.Match) -> Said:
    name, before, after = match[1], _type(match[2]), _type(match[3])
    sentence = f"`{name}` is {before} before the `if` and becomes {after} in it: give it one type in both places."
    return Said(sentence, _assignment(e, name))


def _assignment(e: Evidence, name: str) -> Line | None:
    """The first assignment to ``name`` inside the statement (a loop, an if) that the compiler points to."""
    if not (e.tree and e.line):
        return None
    first = e.function[0].lineno - 1
    for block in ast.walk(e.tree):
        if isinstance(block, (ast.For, ast.While, ast.If)) and block.lineno + first == e.line.lineno:
            for node in ast.walk(block):
                targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
                names = {n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)}
                if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and name in names:
                    return e.function[node.lineno - 1]
    return None


def _type(text: str) -> str:
    """Triton's spelling of a type for a reader: "fp32 of shape 16x64", "a single int32"."""
    found = re.fullmatch(r"<\[(.*)\], (\w+)>", text.strip())
    if found:
        return f"{found[2]} of shape {'x'.join(re.findall(r'[0-9]+', found[1]))}"
    return f"a single {text.strip().removesuffix('[]')}"


@rule(
    r"must be of type tl\.constexpr|must have type `constexpr|is not a constexpr|Shape element \d+ must be a constexpr"
)
def missing_constexpr(e: Evidence, match: re.Match) -> str:
    used = e.in_call("arange" if "arange" in e.message else "")
    names = [name for name in e.plain_parameters() if name in used]
    if not names:
        return (
            "This size must be known when the kernel is compiled: build it from numbers and from parameters marked "
            "`tl.constexpr` only."
        )
    first, *_ = names
    return (
        f"`{first}` sets a size, so it must be known when the kernel is compiled: write `{first}: tl.constexpr` in the "
        "kernel's parameters."
    )


@rule(r"Parameter `(\w+)` of `(\w+)` was given a value that has no type")
def constexpr_for_a_type(e: Evidence, match: re.Match) -> str:
    return (
        f"`{match[1]}` is neither a number nor a tensor, so it must be known when `{match[2]}` is compiled: write "
        f"`{match[1]}: tl.constexpr` in its parameters."
    )


@rule(r"arange's range must be a power of 2|must be a power of 2|not a power of two")
def not_a_power_of_two(e: Evidence, match: re.Match) -> str | None:
    if "num_warps" in e.message:
        return "`num_warps` must be a power of two: 1, 2, 4, 8 or 16."
    what = "`tl.arange` makes" if "arange" in e.message else "A tensor in a kernel has"
    return f"{what} a power of two of elements only: round the size up with `triton.next_power_of_2` and mask the rest."


@rule(r"numel \((\d+)\) exceeds triton maximum tensor numel \((\d+)\)")
def too_large_a_tile(e: Evidence, match: re.Match) -> str:
    return f"This tile has {match[1]} elements, and Triton allows {match[2]}: loop over smaller tiles."


@rule(r"Both operands must be same dtype. Got (\w+) and (\w+)|must have (?:the )?same (?:data ?type|dtype)")
def dot_types(e: Evidence, match: re.Match) -> str:
    got = f"{match[1]} and {match[2]}" if match[1] else "two different types"
    return (
        f"`tl.dot` is given {got}, but needs one type for both: convert one, for example `p.to(v.dtype)` for the "
        "product with V."
    )


@rule(r"equal reduction dimensions|not compatible for matmul|inner dimensions? must match")
def dot_shapes(e: Evidence, match: re.Match) -> str:
    return (
        "`tl.dot` multiplies (M, K) by (K, N), but these two have different K: transpose the second with `tl.trans`, "
        "or load it transposed."
    )


@rule(r"(?:incompatible dimensions at index|Dimensions must match.*at) (\d+): (\d+) (?:and|vs\.?) (\d+)")
def shapes_do_not_fit(e: Evidence, match: re.Match) -> str:
    return (
        f"These shapes do not fit: dimension {match[1]} is {match[2]} on one side and {match[3]} on the other; "
        "check the ranges, and which one needs [:, None] or [None, :]."
    )


@rule(r"could not be broadcast together with (?:remapped )?shapes (\([^)]*\)) (\([^)]*\))")
def numpy_shapes(e: Evidence, match: re.Match) -> str:
    return f"Shapes {match[1]} and {match[2]} do not fit together: check them, and where a dimension is missing."


@rule(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)\D*(\d+)")
def torch_shapes(e: Evidence, match: re.Match) -> str:
    return f"These shapes do not fit: dimension {match[3]} is {match[1]} on one side and {match[2]} on the other."


@rule(r"axis (-?\d+) out of bounds|invalid axis (-?\d+)")
def reduction_axis(e: Evidence, match: re.Match) -> str:
    return f"This tensor has no axis {match[1] or match[2]}: in a (rows, columns) tile, axis=1 reduces each row."


@rule(r"Unsupported ptr type (?:<.*, )?(\w+)>? in `?tl\.(\w+)")
def not_a_pointer(e: Evidence, match: re.Match) -> str:
    return (
        f"`tl.{match[2]}` needs pointers, but is given {match[1]} numbers: launch the kernel with the tensor itself "
        "and add offsets to it."
    )


@rule(r"'numpy\.ndarray' object has no attribute|'ndarray'")
def numpy_argument(e: Evidence, match: re.Match) -> str:
    return "A NumPy array was given where a torch tensor is needed: convert it with `torch.from_numpy`."


@rule(r"Expected dtype \[.*'fp32'.*\] but got (\w+)")
def needs_fp32(e: Evidence, match: re.Match) -> str:
    return f"This function of `tl` takes fp32, but is given {match[1]}: convert first with `.to(tl.float32)`."


@rule(r"bf(?:loat)?16")
def bf16_on_a_cpu(e: Evidence, match: re.Match) -> str | None:
    if e.error == "NameError":
        return None
    return (
        "bf16 arithmetic does not work in the interpreter: on a CPU use float16 or float32 inputs, or convert with "
        "`.to(tl.float32)` right after the load."
    )


# ---- launching -----------------------------------------------------------------------------------------


@rule(r"KernelCalledWithoutGrid: (\w+)|Cannot call @triton\.jit")
def no_grid(e: Evidence, match: re.Match) -> str:
    name = match[1] or "kernel"
    return f"A kernel is launched with a grid in square brackets: write `{name}[(programs,)](...)`."


@rule(r"RuntimeError: 0 active drivers")
def needs_a_gpu(e: Evidence, match: re.Match) -> str:
    return (
        "This asks Triton for a GPU, and there is none here. An autotuner times its configurations on one: leave a "
        "single `triton.Config`, or none."
    )


@rule(r"BadGrid|object of type '\w+' has no len|grid must have at most 3 dim|'float' object cannot be interpreted")
def bad_grid(e: Evidence, match: re.Match) -> str | None:
    if "BadGrid" not in e.error and not re.search(r"\w+\[.*\]\s*\(", e.text):
        return None
    return "The grid must be a tuple of one to three whole numbers: `kernel[(triton.cdiv(n, block),)](...)`."


@rule(r"(\w+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.+)")
def missing_argument(e: Evidence, match: re.Match) -> str:
    names = ", ".join(f"`{name}`" for name in re.findall(r"'(\w+)'", match[2]))
    return f"`{match[1]}` is called without {names}: give every parameter a value."


@rule(r"(\w+)\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given")
def too_many_arguments(e: Evidence, match: re.Match) -> str:
    return f"`{match[1]}` has {match[2]} parameters but is given {match[3]}: compare the call with its definition."


@rule(r"(\w+)\(\) got (?:an unexpected keyword argument|some positional.*arguments passed as keyword.*) '(\w+)'")
def unexpected_argument(e: Evidence, match: re.Match) -> str:
    return f"`{match[1]}` has no parameter `{match[2]}`: compare the call with its definition."


@rule(r"(\w+)\(\) got multiple values for argument '(\w+)'")
def argument_twice(e: Evidence, match: re.Match) -> str:
    return f"`{match[1]}` is given `{match[2]}` twice, by position and by name: drop one."


@rule(r"Keyword argument (\w+) was specified but unrecognised")
def unknown_option(e: Evidence, match: re.Match) -> str:
    return f"`{match[1]}` is neither a parameter of the kernel nor a launch option such as `num_warps`: remove it."


@rule(r"out of resource: shared memory, Required: (\d+), Hardware limit: (\d+)")
def shared_memory(e: Evidence, match: re.Match) -> str:
    needs, has = (int(n) / 1024 for n in match.groups())
    return (
        f"One program needs {needs:.0f} KiB of shared memory, but the GPU has {has:.0f}: use smaller tiles or "
        "fewer `num_stages`."
    )


# ---- CUDA C++ ------------------------------------------------------------------------------------------


@rule(r'NvrtcError: identifier "(\w+)" is undefined')
def cuda_undefined(e: Evidence, match: re.Match) -> str:
    return f"`{match[1]}` is not known here: check its spelling, and that it is declared above and in this scope."


@rule(r'NvrtcError: expected an? ("[^"]+"|\w+)')
def cuda_expected(e: Evidence, match: re.Match) -> str:
    return f"The compiler expected {match[1]} here: look at this line, and at the end of the one above it."


@rule(r'NvrtcError: no instance of overloaded function "(__shfl\w*)"|NvrtcError: too few arguments')
def cuda_shuffle(e: Evidence, match: re.Match) -> str | None:
    if "__shfl" not in e.message + e.text:
        return None
    return "A warp shuffle takes a mask, a value and a lane or step: `__shfl_xor_sync(0xffffffffu, m, step)`."


@rule(r"NvrtcError: could not open source file \"([^\"]+)\"")
def cuda_header(e: Evidence, match: re.Match) -> str:
    return f"There is no header {match[1]} here, and none is needed: expf, fmaxf, shuffles and INFINITY are built in."


@rule(r"NvrtcError: (.+)")
def cuda_other(e: Evidence, match: re.Match) -> str:
    return f"{match[1][0].upper()}{match[1][1:]}."


@rule(r"NoKernel: (.+)")
def cuda_no_kernel(e: Evidence, match: re.Match) -> str:
    return f"{match[1][0].upper()}{match[1][1:]}: the checker finds the kernel by that name."


# ---- plain Python --------------------------------------------------------------------------------------


@rule(r"(?:name '(\w+)'|(\w+)) is not defined|local variable '(\w+)'")
def undefined_name(e: Evidence, match: re.Match) -> str:
    name = match[1] or match[2] or match[3]
    names = [n for n in ast.walk(e.tree or ast.Module([], [])) if isinstance(n, ast.Name)]
    assigned = {n.id for n in names} - {name}
    arguments = {a.arg for a in e.tree.args.args} if e.tree else set()
    if name in {n.id for n in names if isinstance(n.ctx, ast.Store)}:
        return f"`{name}` has no value on some way to this line: give it one before the loop or the `if`."
    meant = _close(name, sorted(assigned | arguments))
    return f"`{name}` is not defined here: " + (
        f"did you mean `{meant}`?" if meant else "check its spelling, or run the cell that defines it."
    )


@rule(r"module 'triton\.language(?:\.\w+)*' has no attribute '(\w+)'")
def unknown_tl_name(e: Evidence, match: re.Match) -> str:
    meant = _close(match[1], _tl_names())
    return f"Triton has no `tl.{match[1]}`: " + (
        f"did you mean `tl.{meant}`?" if meant else "look for its name in Triton's language reference."
    )


@rule(r"module '([\w.]+)' has no attribute '(\w+)'")
def unknown_module_name(e: Evidence, match: re.Match) -> str:
    meant = _close(match[2], dir(sys.modules.get(match[1])))
    return f"`{match[1]}` has no `{match[2]}`: " + (f"did you mean `{meant}`?" if meant else "check its spelling.")


@rule(r"'NoneType' object (?:has no attribute|is not)")
def none_used(e: Evidence, match: re.Match) -> str:
    return "A value on this line is None: does the function that made it end with `return`?"


@rule(r"AttributeError.*'(\w+)' object has no attribute '?(\w+)")
def unknown_attribute(e: Evidence, match: re.Match) -> str:
    return f"A {match[1]} has no `{match[2]}`: check its spelling, and whether the value is what you think it is."


@rule(r"No module named '([\w.]+)'")
def unknown_module(e: Evidence, match: re.Match) -> str:
    return f"The module `{match[1]}` is not installed here, and no exercise needs it: remove the import."


@rule(r"cannot import name '(\w+)' from '([\w.]+)'")
def unknown_import(e: Evidence, match: re.Match) -> str:
    return f"`{match[2]}` offers no `{match[1]}`: check its spelling."


@rule(r"IndexError")
def index_error(e: Evidence, match: re.Match) -> str:
    return f"An index on this line is too large or has too many parts ({e.message.rstrip('.')})."


@rule(r"KeyError: (.+)")
def key_error(e: Evidence, match: re.Match) -> str | None:
    if e.in_kernel:  # the compiler's own
        return None
    return f"There is no entry {match[1]} in the table that is asked for it on this line."


@rule(r"warp specialize got (\d+) partitions but (\d+) (warp|register) counts")
def uncounted_workers(e: Evidence, match: re.Match) -> str:
    return (
        f"`gl.warp_specialize` is given {match[1]} workers and {match[2]} numbers of {match[3]}s: "
        "one number for each role but the first."
    )


@rule(r"AssertionError")
def descriptor_box(e: Evidence, match: re.Match) -> str | None:
    if not re.search(r"desc\w*\.(load|store)\(", e.text):
        return None
    return "Coordinates or a shape on this line do not fit the descriptor: compare them with its box, axis by axis."


@rule(r"ZeroDivisionError")
def zero_division(e: Evidence, match: re.Match) -> str:
    return "This line divides by zero."


@rule(r"RecursionError")
def recursion(e: Evidence, match: re.Match) -> str:
    return "A function calls itself without end: check the condition that should stop it."


@rule(r"(?:SyntaxError|IndentationError|TabError): (.+?)(?: \(.*\))?$")
def syntax(e: Evidence, match: re.Match) -> str:
    return f"This line is not valid Python: {match[1]}."


@rule(r"MemoryError|not enough memory")
def memory(e: Evidence, match: re.Match) -> str:
    return "There is not enough memory for this: a tensor is far larger than the case needs; check its shape."


@rule(r"static assert|CompileTimeAssertionFailure: (.*)")
def static_assert(e: Evidence, match: re.Match) -> str:
    return f"A `tl.static_assert` in the kernel does not hold ({_last_line(e.message) or 'no message'})."


def _last_line(message: str) -> str:
    lines = [line for line in message.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else ""


def fallback(e: Evidence) -> str:
    """For an error no rule knows: its type and the last line of its message."""
    quoted = re.fullmatch(r"(\w+)\((['\"])(.*)\2\)", e.message, re.DOTALL)
    if e.error == "CompilationError" and quoted:  # Triton's compiler wraps the original error
        return fallback(Evidence(quoted[1], quoted[3]))
    last = _last_line(e.message)
    return f"{e.error}: {last}" if last else f"{e.error}."
