# SPDX-License-Identifier: MIT
"""The command line: one file per command, each loaded when it is used.

Exit codes: 0, all is well; 1, the command ran and found a problem; 2, wrong usage; 3, no platform could be used;
4, the output could not be written; 128 and the number of a signal where one ended the command: 130, interrupted; 141,
the reader of a pipe closed it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]


class _Ended(KeyboardInterrupt):
    """A signal ends the command, after it has removed its temporary files."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


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
    ends = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {one: signal.signal(one, _end) for one in ends if signal.getsignal(one) is signal.SIG_DFL}
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except _Ended as ended:
        code = 128 + ended.number  # as a shell counts it
    except KeyboardInterrupt:
        with suppress(OSError):
            print("interrupted", file=sys.stderr)
        code = 128 + signal.SIGINT
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    sys.exit(code)


def _end(number: int, _: object) -> None:
    raise _Ended(number)


def _run(words: Sequence[str]) -> int | str | None:
    """Run the command that the words name and return what the process exits with."""
    from rocpy.cli import _output
    from rocpy.cli._application import run_command
    from rocpy.errors import InvalidProblemError, LibraryError, UnsupportedError

    _output.prepare_streams()
    try:
        try:
            code: int | str | None = run_command(words)
        except SystemExit as ended:  # after --help or --version, or a program's own
            code = ended.code
        sys.stdout.flush()
    except _output.UsageError as error:
        _output.warn(str(error))
        return _output.EXIT_USAGE
    except InvalidProblemError as error:  # a variable with a value that is none of its choices
        _output.print_error(error)
        return _output.EXIT_USAGE
    except (LibraryError, UnsupportedError) as error:
        _output.print_error(error, "Run `rocpy doctor` to find the cause; ROCPY_PLATFORM=host runs on the CPU.")
        return _output.EXIT_NO_PLATFORM
    except BrokenPipeError:  # the reader of a pipe went away
        _output.discard(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as error:
        if not _output.is_of_writing(error):
            raise
        _output.discard(sys.stdout)
        _output.warn(f"rocpy: cannot write the output: {error.strerror}")
        return _output.EXIT_NOT_WRITTEN
    return code
