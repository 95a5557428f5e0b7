# SPDX-License-Identifier: MIT
"""The command line: one file per command, each loaded when it is used.

Exit codes: 0, all is well; 1, the command ran and found a problem; 2, wrong usage; 3, no platform could be used.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process if ``None``.

    Examples
    --------
    >>> from rocpy.cli import main
    >>> main(["--version"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    SystemExit: 0
    """
    from rocpy.cli._application import application
    from rocpy.cli._output import EXIT_NO_PLATFORM, EXIT_USAGE, error_message
    from rocpy.errors import InvalidProblemError, LibraryError, UnsupportedError

    try:
        application()(args=arguments, prog_name="rocpy")
    except InvalidProblemError as error:  # a variable with a value that is none of its choices
        error_message(error)
        sys.exit(EXIT_USAGE)
    except (LibraryError, UnsupportedError) as error:
        error_message(error, "`rocpy doctor` looks for the cause; ROCPY_PLATFORM=host runs on the CPU.")
        sys.exit(EXIT_NO_PLATFORM)
