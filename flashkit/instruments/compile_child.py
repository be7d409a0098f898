"""The compile gate's child: compiles one kernel of one module for one GPU architecture; JSON on stdout.

Started as ``python -I compile_child.py FOLDER`` with a clean environment: Triton's own helpers are wrapped when the
interpreter is on, so a process that interprets cannot compile. FOLDER holds request.json and module.py.
"""

import ast
import functools
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
import types

CONSTEXPRS = "_constexprs"
OFFERING = ("triton.language.", "triton.experimental.gluon.")  # the modules of what a kernel may call
SHARED_LIMIT = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}  # KiB a block, CUDA guide table 30


def main(folder: str) -> None:
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the kernel or the compiler prints must not mix with the answer
    with open(os.path.join(folder, "request.json")) as file:
        request = json.load(file)
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(2 * request["cpu_seconds"])  # for a child that sleeps and is no longer waited for
    sys.path[:0] = request["paths"]
    os.chdir(folder)
    stand_in_for_torch(request["torch_modules"])
    try:
        if request.get("only_triton"):
            only_triton()
        answer = compile_kernel(os.path.join(folder, "module.py"), request)
    except Exception as error:
        answer = describe(error, os.path.join(folder, "module.py"))
    os.write(answer_to, json.dumps(answer).encode())


def compile_kernel(path: str, request: dict) -> dict:
    """The module's kernel through Triton and ptxas: registers and local memory a thread, shared memory a block."""
    import triton
    from triton.backends.compiler import GPUTarget

    with open(path) as file:
        text = file.read()
    module = {"__name__": "module", "__file__": path}
    exec(compile(text, path, "exec"), module)
    kernel = module[request["kernel"]]
    names = list(request["types"])
    source = source_class(kernel)(
        fn=kernel,
        signature=request["types"],
        constexprs={(names.index(name),): value for name, value in module[CONSTEXPRS].items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in request["aligned"]},
    )
    start = time.perf_counter()
    compiled = triton.compile(source, target=GPUTarget("cuda", request["arch"], 32), options=request["options"])
    seconds = time.perf_counter() - start
    with open("kernel.ptx", "w") as file:
        file.write(compiled.asm["ptx"])
    shared, limit = compiled.metadata.shared, SHARED_LIMIT.get(request["arch"], 227) * 1024
    answer = {"ok": shared <= limit, "shared": shared, "seconds": seconds, **usage(compiled.asm["cubin"])}
    if request.get("laid_out"):
        lay_out("kernel.cubin")
    answer["roles"] = workers(compiled.asm.get("ttgir", ""))
    code = re.sub(r"/\*.*?\*/", "", compiled.asm["ptx"], flags=re.DOTALL)
    waits = re.findall(r"^\s*wgmma\.wait_group\S*\s+(\d+)", code, re.MULTILINE)
    answer["in_flight"] = max(map(int, waits), default=0)
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", compiled.asm["ptx"])
    answer["threads"] = int(threads[1]) if threads else 32 * compiled.metadata.num_warps
    if not answer["ok"]:
        message = f"out of resource: shared memory, Required: {shared}, Hardware limit: {limit}"
        answer |= {"error": "OutOfResources", "message": message, "lineno": 0, "traceback": message}
    return answer


def workers(ttgir: str) -> list[list[int]]:
    """Warps and requested registers (0: none asked) of each worker that ``warp_specialize`` starts."""
    ttgir = re.sub(r'"(?:[^"\\]|\\.)*"', '""', ttgir)  # what a kernel's own assembly says counts for nothing
    asked = re.search(r"requestedRegisters = array<i32: ([\d, ]+)>", ttgir)
    warps = [int(n) for n in re.findall(r"^\s*partition\d+\(.*?\) num_warps\((\d+)\)", ttgir, re.MULTILINE)]
    registers = list(map(int, asked[1].split(","))) if asked else [0] * len(warps)
    return [list(pair) for pair in zip(warps, registers, strict=False)]


def source_class(kernel):
    """What turns the function into the compiler's input: Gluon kernels have a way of their own."""
    from triton.compiler import ASTSource

    if not getattr(kernel, "is_gluon", bool)():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def stand_in_for_torch(modules: list[str]) -> None:
    """torch takes 3 s to import and no kernel may call it: its constants, and a function for every other name."""
    for name in modules:
        module = types.ModuleType(name)
        module.__dict__.update(__path__=[], inf=math.inf, nan=math.nan, pi=math.pi, e=math.e)
        module.__getattr__ = functools.partial(_torch_function, name)  # Triton wants plain modules: no subclass
        sys.modules[name] = module


def _torch_function(module: str, name: str):
    full = f"{module}.{name}"
    if name.startswith("__"):
        raise AttributeError(full)

    def function(*args, **kwargs):
        raise TypeError(f"{full} cannot be called in a kernel")

    function.__qualname__ = full
    return sys.modules.get(full, function)


def only_triton() -> None:
    """Triton calls whatever Python function a kernel names while it compiles it; from now on only those for kernels."""
    from triton.compiler.code_generator import CodeGenerator

    call, enter = CodeGenerator.call_Function, CodeGenerator.visit_With

    def check(self, function, named):
        if not is_for_kernels(function, self.builtin_namespace.values()):
            raise TypeError(f"{ast.unparse(named)} cannot be called in a kernel")

    def checked_call(self, node, fn, args, kws):
        check(self, fn, getattr(node, "func", node))  # x[:, None] is a call of Triton's own
        return call(self, node, fn, args, kws)

    def checked_with(self, node):
        for item in node.items:
            check(self, self.visit(item.context_expr.func), item.context_expr.func)
        return enter(self, node)

    CodeGenerator.call_Function, CodeGenerator.visit_With = checked_call, checked_with


def is_for_kernels(function, builtins) -> bool:
    """Jit functions, what Triton and Gluon offer them, math's, Python's few that Triton takes, operators of numbers."""
    from triton.runtime.jit import JITFunction

    if isinstance(getattr(function, "__func__", function), JITFunction) or any(function is one for one in builtins):
        return True
    if type(getattr(function, "__self__", None)) in (bool, int, float, str, tuple, list):
        return True
    module = str(getattr(function, "__module__", None))
    return module in ("math", "triton") or f"{module}.".startswith(OFFERING)


def usage(cubin: bytes) -> dict:
    """Registers and local memory a thread, static shared memory a block: cuobjdump -res-usage; {} when it cannot."""
    from triton import knobs

    with open("kernel.cubin", "wb") as file:
        file.write(cubin)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", "kernel.cubin"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL|SHARED):(\d+)", said)}
    if not found:
        return {}
    return {
        "registers": found["REG"],
        "spills": found["STACK"] + found["LOCAL"],
        "static_shared": found.get("SHARED", 0),
    }


def lay_out(cubin: str) -> None:
    """ptxas's code with every instruction's bits in kernel.sass, where nvdisasm can be had."""
    from triton import knobs

    command = [knobs.nvidia.nvdisasm.path, "-c", "-hex", "-ndf", cubin]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return
    with open("kernel.sass", "w") as file:
        file.write(said)


def describe(error: Exception, path: str) -> dict:
    """The error, innermost cause first: its type and message, and the module line of the deepest known statement."""
    import traceback

    with open(path) as file:
        text = file.read()
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    lineno = 0
    for link in chain:
        node, source = getattr(link, "node", None), getattr(link, "src", None)
        if hasattr(node, "lineno") and source and (position := text.find(source.rstrip())) >= 0:
            lineno = text.count("\n", 0, position) + node.lineno
    root = chain[-1]
    message = getattr(root, "error_message", None) or str(root)
    lineno = lineno or line_of_reference(message, text)
    if not lineno:  # an error of the module itself, outside any kernel
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        lineno = frames[-1].lineno if frames else 0
    full = "\n".join(
        "".join(traceback.format_exception_only(link)) for link in reversed(chain)
    )  # frames: Triton's only
    return {"ok": False, "error": type(root).__name__, "message": message, "lineno": lineno, "traceback": full}


def line_of_reference(message: str, text: str) -> int:
    """Where the function is used that Triton refuses by its value alone; 0 when the message is about something else."""
    found = re.search(r"Unsupported function referenced: <(?:function|built-in \w+|class|ufunc) '?([\w.]+)", message)
    if found:
        last = found[1].split(".")[-1]
        for node in ast.walk(ast.parse(text)):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
            if name == last and isinstance(node.ctx, ast.Load):
                return node.lineno
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
