# SPDX-License-Identifier: MIT
"""The sdist, and wheels that are built from it."""

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

from toolchain import Toolchain

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD_SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
BUILD_WHEEL = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"
ABOUT = (
    "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], sysconfig.get_config_var('EXT_SUFFIX'), "
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)


def run(*command: str | Path, cwd: Path, **environ: str) -> None:
    """Print and run a command; its failure ends the check."""
    print("+", *command, flush=True)
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, env={**inherited, **environ})


class Interpreter:
    """A Python to build for; ``path`` has what requirements/build.txt lists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        done = subprocess.run([path, "-c", ABOUT], check=True, capture_output=True, text=True)
        (major, minor), self.suffix, free_threaded = json.loads(done.stdout)
        self.version = f"{major}.{minor}"
        self.name = self.version + "t" * free_threaded
        self.tag = f"cp{major}{minor}"
        self.abi = self.tag + "t" * free_threaded


def this_interpreter() -> Interpreter:
    """Return the Python that runs this, which has the build requirements."""
    return Interpreter(Path(sys.executable))


def build_sdist(folder: Path) -> Path:
    """Build the sdist into ``folder`` and return it."""
    for old in folder.glob("*.tar.gz"):
        old.unlink()
    run(sys.executable, "-c", BUILD_SDIST, folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, interpreter: Interpreter, toolchain: Toolchain, build: Path, folder: Path) -> Path:
    """Build a wheel into ``folder`` and return it: from the unpacked sdist, so that what git ignores cannot slip in."""
    # A fixed place, so that a compiler's cache knows the files again.
    unpacked = build / f"source-{toolchain.arch}"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    made = build / f"made-{toolchain.arch}"
    shutil.rmtree(made, ignore_errors=True)
    host = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    run(
        interpreter.path,
        "-c",
        BUILD_WHEEL,
        made,
        cwd=source,
        CMAKE_TOOLCHAIN_FILE=str(toolchain.file),
        _PYTHON_HOST_PLATFORM=f"linux-{toolchain.arch}",
        # The headers of a Python are the same for all 64-bit systems, but for names.
        SETUPTOOLS_EXT_SUFFIX=interpreter.suffix.replace(host, f"{toolchain.arch}-linux-gnu"),
    )
    (wheel,) = made.glob("*.whl")
    return retag(wheel, f"linux_{toolchain.arch}", toolchain.platform_tag, folder)


def retag(wheel: Path, old: str, new: str, folder: Path) -> Path:
    """Copy a wheel into ``folder`` with another platform in its name, its WHEEL and its RECORD."""
    renamed = folder / wheel.name.replace(old, new)
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(renamed, "w", zipfile.ZIP_DEFLATED) as made:
        (about,) = (name for name in given.namelist() if name.endswith(".dist-info/WHEEL"))
        text = given.read(about).decode().replace(f"-{old}\n", f"-{new}\n").encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        for item in given.infolist():
            data = given.read(item)
            if item.filename == about:
                data = text
            elif item.filename.endswith(".dist-info/RECORD"):
                lines = data.decode().splitlines(keepends=True)
                data = "".join(
                    f"{about},sha256={digest},{len(text)}\n" if line.startswith(f"{about},") else line for line in lines
                ).encode()
            made.writestr(item, data, compresslevel=9)
    return renamed
