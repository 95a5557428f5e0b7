# SPDX-License-Identifier: MIT
"""The command line: one file per command, each loaded when it is used.

Exit codes: 0, all is well; 1, the command ran and found a problem; 2, wrong usage; 3, no platform could be used;
130, interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process if ``None``.

    Raises
    ------
    SystemExit
        Always, with the exit code.

    Examples
    --------
    >>> from rocpy.cli import main
    >>> main(["--version"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    SystemExit: 0
    """
    from rocpy.cli._application import run_command
    from rocpy.cli._output import EXIT_INTERRUPTED, EXIT_NO_PLATFORM, EXIT_USAGE, UsageError, print_error, warn
    from rocpy.errors import InvalidProblemError, LibraryError, UnsupportedError

    try:
        code = run_command(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except UsageError as error:
        warn(str(error))
        code = EXIT_USAGE
    except InvalidProblemError as error:  # a variable with a value that is none of its choices
        print_error(error)
        code = EXIT_USAGE
    except (LibraryError, UnsupportedError) as error:
        print_error(error, "Run `rocpy doctor` to find the cause; ROCPY_PLATFORM=host runs on the CPU.")
        code = EXIT_NO_PLATFORM
    except KeyboardInterrupt:
        warn("interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away; nothing that is left to print may raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
