# SPDX-License-Identifier: MIT
"""Run folders of nccl4py's examples on rocpy.compat.nccl, each in processes of its own, and count.

    python tools/nccl_examples.py <checkout of NCCL>/docs/examples <checkout of NCCL>/bindings/nccl4py/examples

Of each file only the import is changed: ``import nccl.core as nccl`` becomes ``from rocpy.compat import nccl``; what
stands in for a GPU, cupy or cuda.core that is not there, tools/foreign_examples.py says. Programs that import mpi4py
are started as two ranks by mpiexec, the others as one process; the host platform has two devices then, unless
ROCPY_HOST_DEVICES says otherwise. The status is 0 if all examples ran but those of KNOWN, which docs/compat-nccl.md
explains.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from foreign_examples import Library, imports, main

DEVICE_API = "kernels in NVIDIA's CuTe DSL over nccl.core.device.cute: RCCL has no device API for Python"

#: Examples that cannot run, each with the reason.
KNOWN = dict.fromkeys(
    (
        "00_basic",
        "01_coop_and_teams",
        "02_lsa_allreduce",
        "03_multimem",
        "04_gin_ops",
        "05_barriers",
        "06_resource_buffers",
        "07_compile_with_fake_args",
        "08_reduce_copy",
    ),
    DEVICE_API,
)


def changed(source: str) -> str:
    """Return a program of nccl4py's with its imports changed."""
    source = re.sub(
        r"^(\s*)import nccl\.core as (\w+)", r"\1from rocpy.compat import nccl as \2", source, flags=re.MULTILINE
    )
    source = re.sub(r"^(\s*)from nccl import core\b", r"\1from rocpy.compat import nccl", source, flags=re.MULTILINE)
    return re.sub(r"^(\s*)from nccl\.core import", r"\1from rocpy.compat.nccl import", source, flags=re.MULTILINE)


def launcher(source: str) -> Sequence[str]:
    """Return what starts the ranks of a program."""
    if not imports(source, "mpi4py"):
        return ()
    beside = Path(sys.executable).with_name("mpiexec")
    return (str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec", "-n", "2")


LIBRARY = Library(
    changed=changed,
    is_example=lambda path: imports(path.read_text(), "nccl.core"),
    what="that import nccl.core",
    known=KNOWN,
    launcher=launcher,
    environment=(("ROCPY_HOST_DEVICES", "2"),),
)

if __name__ == "__main__":
    sys.exit(main(LIBRARY, (__doc__ or "").partition("\n")[0]))
