"""FlashAttention, kernel by kernel. Import it first: without a GPU it switches Triton's interpreter on.

`flashkit.check`, `flashkit.hint` and `flashkit.environment` load on first use, so that `import flashkit` needs only
numpy, torch and (on Linux) triton.
"""

import importlib
import importlib.abc
import importlib.util
import os
import sys
import types

__version__ = "0.1.0"

NEEDS_TRITON = (
    "Triton has wheels for Linux only, so this kernel needs Linux: use WSL2 on Windows or a Linux container on a Mac "
    "(README, Where it runs); reading, figures and NumPy oracles work here."
)
_LAZY = {  # name: module, attribute (None: the module itself)
    "check": ("flashkit.check", None),
    "hint": ("flashkit.check", "hint"),
    "environment": ("flashkit.environment", None),
}


class _SayWhatTritonNeeds(importlib.abc.MetaPathFinder):
    """Last in sys.meta_path: asked for triton only when nobody else has it."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "triton":
            raise ModuleNotFoundError(NEEDS_TRITON, name="triton")
        return None


class _CallableCheck(types.ModuleType):
    def __call__(self, *args, **kwargs):
        return self.check(*args, **kwargs)


class _Flashkit(types.ModuleType):
    """Makes `flashkit.check(...)` work although the subpackage of that name is bound to the same attribute."""

    def __setattr__(self, name, value):
        if name == "check" and type(value) is types.ModuleType:
            value.__class__ = _CallableCheck
        super().__setattr__(name, value)


def _prepare_triton() -> None:
    """Chooses interpreter or GPU before triton is first imported, because triton wraps its own helpers at import.

    Raises ImportError when triton came first, without the interpreter, on a machine with no CUDA device.
    """
    import torch

    if importlib.util.find_spec("triton") is None:
        sys.meta_path.append(_SayWhatTritonNeeds())
    elif not torch.cuda.is_available():
        if "triton.language" in sys.modules and not _is_interpreted(sys.modules["triton.language"]):
            raise ImportError(
                "triton was imported before flashkit, so its kernels cannot run on this machine, which has no CUDA "
                "device. Restart the kernel and make `import flashkit` the first line."
            )
        os.environ["TRITON_INTERPRET"] = "1"


def _is_interpreted(language) -> bool:
    return type(language.zeros).__name__ == "InterpretedFunction"


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module 'flashkit' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    module = importlib.import_module(module_name)
    return getattr(module, attribute) if attribute else module


sys.modules[__name__].__class__ = _Flashkit
_prepare_triton()
