# SPDX-License-Identifier: MIT
"""Compare each .pyi with the extension module it describes (mypy's stubtest)."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Extension modules of a layer import its framework, so that they are looked at only where it is installed.
FRAMEWORKS = {"jax": "jax", "torch": "torch", "cooperative": "numba"}


def main() -> int:
    """Run stubtest on the extension modules; a public one without a stub is an error: its types would end there.

    A private module needs a stub only if a .py file imports it, and mypy says so then. What a module has for other
    extension modules need not be in its stub; what a stub promises must be in the module.
    """
    sources = sorted((ROOT / "rocpy").rglob("*.pyx")) + sorted((ROOT / "rocpy").rglob("_*.cpp"))
    public = [path for path in sources if not any(part.startswith("_") for part in path.relative_to(ROOT).parts)]
    missing = [str(path.relative_to(ROOT)) for path in public if not path.with_suffix(".pyi").is_file()]
    if missing:
        print("no stub (.pyi) beside:", ", ".join(missing), file=sys.stderr)
    stubbed = [path.relative_to(ROOT).with_suffix("") for path in sources if path.with_suffix(".pyi").is_file()]
    waiting = [path for path in stubbed if find_spec(FRAMEWORKS.get(path.parts[1], "sys")) is None]
    for path in waiting:
        print(f"not looked at: {'.'.join(path.parts)}, {FRAMEWORKS[path.parts[1]]} is not installed")
    modules = [".".join(path.parts) for path in stubbed if path not in waiting]
    print("stubtest:", ", ".join(modules), flush=True)
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        "--concise",
        "--ignore-missing-stub",
        "--mypy-config-file",
        "pyproject.toml",
        "--allowlist",
        "tools/stubtest_allowlist.txt",
        *modules,
    ]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode if modules else 0
    return int(bool(status or missing))


if __name__ == "__main__":
    sys.exit(main())
