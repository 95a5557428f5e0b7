# SPDX-License-Identifier: MIT
"""What tools/nvmath_examples.py and tools/nccl_examples.py share: another library's examples, run on rocpy and counted.

Of each file only the imports of that library are changed. Where there is no GPU that torch knows, tensors that are made
on a device are made in CPU memory. Where there is no cupy, or no cuda.core with a driver, modules of that name stand in
for them: numpy's functions, streams that have nothing to wait for, rocpy's devices. The examples' calls of the library
are run then, cupy's arrays are not.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 600


@dataclass(frozen=True)
class Library:
    """A library whose examples are run.

    Attributes
    ----------
    changed
        Changes the imports of a program.
    is_example
        Whether a file is one.
    what
        How the files are named, for people.
    known
        Examples that cannot run, by the file's name without ``.py``, each with the reason.
    launcher
        What an example is started with, by its text: nothing, or a launcher and its options.
    environment
        Variables for the examples where they are not set.
    """

    changed: Callable[[str], str]
    is_example: Callable[[Path], bool]
    what: str
    known: dict[str, str]
    launcher: Callable[[str], Sequence[str]] = lambda _: ()
    environment: tuple[tuple[str, str], ...] = ()


class Stream:
    """A stream on which nothing waits."""

    def synchronize(self) -> None:
        """Return at once."""


def imports(source: str, module: str) -> bool:
    """Return whether a program imports a module, or something of it."""
    return re.search(rf"^\s*(import|from) {re.escape(module)}\b", source, re.MULTILINE) is not None


def stand_in_for_cupy() -> types.ModuleType:
    """Return a module named cupy that makes numpy's arrays."""
    import numpy as np

    import rocpy

    rng = np.random.default_rng()

    def rand(*shape: int, dtype: Any = float) -> Any:
        return rng.random(shape).astype(dtype)

    def randn(*shape: int, dtype: Any = float) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    class Device(rocpy.Device):
        def use(self) -> None:
            self.__enter__()

    module = types.ModuleType("cupy")
    module.__dict__.update({name: getattr(np, name) for name in dir(np) if not name.startswith("_")})
    module.random = types.SimpleNamespace(rand=rand, randn=randn)  # type: ignore[attr-defined]
    module.asnumpy = np.asarray  # type: ignore[attr-defined]
    module.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        get_current_stream=Stream,
        Device=Device,
        runtime=types.SimpleNamespace(getDeviceCount=rocpy.Device.count),
    )
    return module


def has_driver() -> bool:
    """Whether NVIDIA's driver is there: without it cuda.core, which other packages bring along, cannot be used."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def stand_in_for_cuda_core() -> tuple[types.ModuleType, types.ModuleType]:
    """Return modules named cuda and cuda.core that have rocpy's devices."""
    import rocpy
    from rocpy.compat import nccl

    class Device(nccl.Device):
        @property
        def compute_capability(self) -> Any:
            return types.SimpleNamespace(major=0, minor=0)

        def to_system_device(self) -> Any:
            return types.SimpleNamespace(memory_info=types.SimpleNamespace(total=self.memory.total_bytes))

    package, module = types.ModuleType("cuda"), types.ModuleType("cuda.core")
    package.core = module  # type: ignore[attr-defined]
    module.Device = Device  # type: ignore[attr-defined]
    module.system = types.SimpleNamespace(get_num_devices=rocpy.Device.count)  # type: ignore[attr-defined]
    return package, module


def in_cpu_memory() -> contextlib.AbstractContextManager[Any]:
    """Return the block in which torch makes tensors in CPU memory, whatever device a program names."""
    import torch
    from torch.overrides import TorchFunctionMode

    import rocpy

    class Cpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = "cpu"
            return args[0] if func is torch.Tensor.cuda else func(*args, **kwargs)

    def set_device(device: Any) -> None:
        rocpy.Device(torch.device(device).index or 0).__enter__()

    torch.cuda.default_stream = torch.cuda.current_stream = lambda *_: Stream()
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.device_count, torch.cuda.set_device = rocpy.Device.count, set_device
    return Cpu()


def run_one(library: Library, path: Path) -> None:
    """Run an example in this process."""
    sys.path.insert(0, str(path.parent))
    source = path.read_text()
    if imports(source, "cupy") and importlib.util.find_spec("cupy") is None:
        sys.modules["cupy"] = stand_in_for_cupy()
    if imports(source, "cuda.core") and not (importlib.util.find_spec("cuda") and has_driver()):
        sys.modules["cuda"], sys.modules["cuda.core"] = stand_in_for_cuda_core()
    block: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if imports(source, "torch"):
        import torch

        if not torch.cuda.is_available():
            block = in_cpu_memory()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), block:
        program = Path(folder) / path.name
        program.write_text(library.changed(source))
        runpy.run_path(str(program), run_name="__main__")


def failure(library: Library, path: Path) -> str:
    """Return why an example failed, in a line, or ``""``."""
    launcher = library.launcher(path.read_text())
    command = [*launcher, sys.executable, sys.argv[0], "--one", str(path)]
    environment = {**dict(library.environment), **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except FileNotFoundError:
        return f"there is no {launcher[0]}"
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    if done.returncode == 0:
        return ""
    return next(reversed(done.stderr.strip().splitlines()), f"status {done.returncode}")


def main(library: Library, description: str) -> int:
    """Run the examples of folders and print what came of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, nargs="+", help="folder of examples, looked through with those below it")
    parser.add_argument("--one", action="store_true", help="run this one file, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        run_one(library, arguments.folder[0])
        return 0
    report = functools.partial(print, flush=True)
    failed = {}
    count = 0
    for folder in arguments.folder:
        paths = sorted(path.resolve() for path in folder.rglob("*.py") if library.is_example(path))
        if not paths:
            parser.error(f"{folder.resolve()}: there are no files {library.what}")
        for path in paths:
            count += 1
            reason = failure(library, path)
            if reason:
                failed[path.stem] = reason
                report(f"{path.relative_to(folder.resolve())}: {reason}")
                if path.stem in library.known:
                    report(f"    known: {library.known[path.stem]}")
    report(f"{count - len(failed)} of {count} run")
    return 1 if failed.keys() - library.known.keys() else 0
