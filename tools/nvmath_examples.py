# SPDX-License-Identifier: MIT
"""Run a folder of nvmath-python's matmul examples on rocpy.compat.nvmath, each in a process of its own, and count.

    python tools/nvmath_examples.py <checkout of nvmath-python>/examples/linalg

Of each file only the import is changed: ``import nvmath`` becomes ``from rocpy.compat import nvmath``. Where there is
no GPU that torch knows, tensors that are made on a device are made in CPU memory. Where there is no cupy, a module of
that name stands in for it with numpy's functions and a stream that has nothing to wait for, so that its examples
compute on numpy's arrays: their calls of nvmath are run, cupy's arrays are not. The status is 0 if all examples ran but
those of KNOWN, which docs/compat-nvmath.md explains.
"""

import argparse
import contextlib
import functools
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

#: Examples that cannot run, each with the reason.
KNOWN = {
    "example22_fp8_delayed_scaling": "a c of float16 beside a result of 8 bits: hipBLASLt wants them equal",
    "example24_fp8_epilog_aux": "aux_type, aux_amax: hipBLASLt's auxiliary outputs have the result's type",
}
SECONDS = 600


def changed(source: str) -> str:
    """Return a program of nvmath-python with its imports changed."""
    source = re.sub(r"^(\s*)import nvmath\b(?!\.)", r"\1from rocpy.compat import nvmath", source, flags=re.MULTILINE)
    return re.sub(r"^(\s*)from nvmath\b", r"\1from rocpy.compat.nvmath", source, flags=re.MULTILINE)


class Stream:
    """A stream on which nothing waits."""

    def synchronize(self) -> None:
        """Return at once."""


def stand_in_for_cupy() -> types.ModuleType:
    """Return a module named cupy that makes numpy's arrays."""
    import numpy as np

    rng = np.random.default_rng()

    def rand(*shape: int, dtype: Any = float) -> Any:
        return rng.random(shape).astype(dtype)

    def randn(*shape: int, dtype: Any = float) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    module = types.ModuleType("cupy")
    module.__dict__.update({name: getattr(np, name) for name in dir(np) if not name.startswith("_")})
    module.random = types.SimpleNamespace(rand=rand, randn=randn)  # type: ignore[attr-defined]
    module.cuda = types.SimpleNamespace(get_current_stream=Stream)  # type: ignore[attr-defined]
    return module


def in_cpu_memory() -> contextlib.AbstractContextManager[Any]:
    """Return the block in which torch makes tensors in CPU memory, whatever device a program names."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Cpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = "cpu"
            return args[0] if func is torch.Tensor.cuda else func(*args, **kwargs)

    torch.cuda.default_stream = torch.cuda.current_stream = lambda *_: Stream()
    torch.cuda.synchronize = lambda *_: None
    return Cpu()


def run_one(path: Path) -> None:
    """Run an example in this process."""
    sys.path.insert(0, str(path.parent))
    source = path.read_text()
    if re.search(r"^\s*(import|from) cupy\b", source, re.MULTILINE):
        try:
            import cupy  # noqa: F401
        except ImportError:
            sys.modules["cupy"] = stand_in_for_cupy()
    block: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if re.search(r"^\s*(import|from) torch\b", source, re.MULTILINE):
        import torch

        if not torch.cuda.is_available():
            block = in_cpu_memory()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), block:
        program = Path(folder) / path.name
        program.write_text(changed(source))
        runpy.run_path(str(program), run_name="__main__")


def failure(path: Path) -> str:
    """Return why an example failed, in a line, or ``""``."""
    command = [sys.executable, __file__, "--one", str(path)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    if done.returncode == 0:
        return ""
    return next(reversed(done.stderr.strip().splitlines()), f"status {done.returncode}")


def main() -> int:
    """Run the examples of a folder and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of examples, looked through with those below it")
    parser.add_argument("--one", action="store_true", help="run this one file, in this process")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.one:
        run_one(folder)
        return 0
    paths = sorted(path for path in folder.rglob("example*.py") if not path.stem.endswith("_utils"))
    if not paths:
        parser.error(f"{folder}: there are no files example*.py")
    report = functools.partial(print, flush=True)
    failed = {}
    for path in paths:
        reason = failure(path)
        if reason:
            failed[path.stem] = reason
            report(f"{path.relative_to(folder)}: {reason}")
            if path.stem in KNOWN:
                report(f"    known: {KNOWN[path.stem]}")
    report(f"{len(paths) - len(failed)} of {len(paths)} run")
    return 1 if failed.keys() - KNOWN.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
