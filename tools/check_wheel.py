# SPDX-License-Identifier: MIT
"""Build the sdist, a wheel from it, install that in a clean environment outside the tree, and test what was installed.

The environment that runs this has the build requirements; the clean one gets the wheel, its dependencies, and pytest.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


def run(*command: str | Path, cwd: Path, **environ: str) -> None:
    """Print and run a command; its failure ends the check."""
    print("+", *command, flush=True)
    inherited = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
    subprocess.run([str(word) for word in command], cwd=cwd, check=True, env={**inherited, **environ})


def build(folder: Path) -> tuple[Path, Path]:
    """Return (sdist, wheel); the wheel comes from the unpacked sdist, so that what git ignores cannot slip in."""
    run(sys.executable, "-c", BUILD_SDIST, folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--wheel-dir",
        folder,
        source,
        cwd=folder,
    )
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def install(folder: Path, wheel: Path) -> Path:
    """Return the Python of a fresh environment that holds the wheel."""
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    pins = ROOT / "requirements"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", pins / "runtime.txt", wheel, cwd=folder)
    run(
        python, "-m", "pip", "install", "--quiet", "--constraint", pins / "test.txt", "pytest", "pyelftools", cwd=folder
    )
    run(python, "-m", "pip", "check", cwd=folder)
    return python


def main() -> int:
    """Run the steps; return 0 unless one fails."""
    with tempfile.TemporaryDirectory(prefix="rocpy-wheel-") as name:
        folder = Path(name)
        try:
            sdist, wheel = build(folder)
            python = install(folder, wheel)
            elsewhere = folder / "elsewhere"
            shutil.copytree(ROOT / "tests" / "packaging", elsewhere / "packaging")
            run(
                python,
                "-m",
                "pytest",
                "-q",
                "-W",
                "error",
                "-p",
                "no:cacheprovider",
                "--rootdir",
                elsewhere,
                "packaging",
                # One word each: pytest, which does not know the options yet, takes a lone path for a folder of tests
                # and would import the checkout before the environment's packages.
                f"--wheel={wheel}",
                f"--sdist={sdist}",
                f"--checkout={ROOT}",
                cwd=elsewhere,
            )
            script = python.with_name("rocpy")
            run(script, "info", cwd=elsewhere)
            run(script, "doctor", "-r", "3", cwd=elsewhere)
            run(script, "demo", cwd=elsewhere)
        except subprocess.CalledProcessError as error:
            print(f"failed with {error.returncode}: {error.cmd}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
