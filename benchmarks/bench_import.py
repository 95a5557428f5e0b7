# SPDX-License-Identifier: MIT
"""How long `import rocpy` takes after numpy, each time in a fresh process."""

import os
import subprocess
import sys
from collections.abc import Sequence

from harness import Groups, Session, main, show, summary

CASES = {
    "numpy": ("pass", "import numpy"),
    "rocpy after numpy": ("import numpy", "import rocpy"),
    "torch after numpy": ("import numpy", "import torch"),
    "nvmath after numpy": ("import numpy", "import nvmath"),
}
PROGRAM = "{before}\nfrom time import perf_counter\nstart = perf_counter()\n{timed}\nprint(perf_counter() - start)"


def groups(*, quick: bool) -> Groups:
    del quick
    return [(label, label) for label in CASES]


def run(session: Session, labels: Sequence[str]) -> None:
    rounds = 3 if session.quick else 15
    # As installed packages are, whatever the shell says: with their modules compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    samples: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for label in labels if turn == 0 else tuple(samples):
            before, timed = CASES[label]
            words = [sys.executable, "-c", PROGRAM.format(before=before, timed=timed)]
            done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                session.note(f"{timed} fails here: {done.stderr.strip().splitlines()[-1]}")
                continue
            samples.setdefault(label, [])
            if turn:  # the first turn writes compiled files and fills the file cache
                samples[label].append(float(done.stdout) * 1e6)
    rows = [
        {"case": "import", "threads": session.threads, "clock": "wall", "label": label, "statement": CASES[label][1]}
        | summary(values)
        | session.context
        for label, values in samples.items()
    ]
    session.rows += rows
    show("import, fresh process", rows)


if __name__ == "__main__":
    sys.exit(main("import", groups, run))
