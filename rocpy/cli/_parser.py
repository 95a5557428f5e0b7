# SPDX-License-Identifier: MIT
"""The parser of the command line: every command's words and options, types with messages for people, suggestions."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rocpy._messages.suggestions import did_you_mean
from rocpy.cli._output import UsageError

EXIT_CODES = (
    "Exit codes: 0 success, 1 a problem was found, 2 wrong usage, 3 no platform could be used, "
    "4 the output could not be written, 130 interrupted, 141 the reader of a pipe closed it."
)

# What a command's function gets and returns: its parsed words, and the exit code.
Run = Callable[[argparse.Namespace], int]


class _Help(argparse.HelpFormatter):
    """Begins the lines of a usage near the left where they would not fit below the options of the first."""

    def _format_usage(self, *arguments: Any) -> str:
        text = super()._format_usage(*arguments)
        fits = all(len(line) <= self._width for line in text.splitlines())
        return text if fits else re.sub(r"\n +(?=\S)", "\n  ", text)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises :class:`UsageError`, suggests what was meant, and takes no abbreviations."""

    def __init__(self, **options: object) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise the message as a UsageError."""
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(value, action.choices)
            what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
            raise UsageError(
                f"{self.prog}: there is no {what} {value!r}{near}; one of {', '.join(action.choices)}"
                f"; see {self.prog} --help"
            )

    def _print_message(self, message: str, file: Any = None) -> None:
        # As any other output: argparse's own says nothing of a message that could not be written.
        print(message, end="", file=file)

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Raise a UsageError for words that nothing takes."""
        if not words:
            return
        options = [text for action in self._actions for text in action.option_strings]
        named = [word.split("=")[0] for word in words if word.startswith("-")]
        after = self.get_default("after_dashes")
        hint = f"; {after} come after --" if after else ""
        if named and named[0] in options:  # of this command, before its name
            self.error(f"{named[0]} comes after the command: {self.prog} {named[0]}")
        if named:
            self.error(f"there is no option {named[0]}{did_you_mean(named[0], options)}{hint}")
        self.error(f"unexpected {' '.join(words)}{hint}")

    def actions(self) -> Iterable[argparse.Action]:
        """Return what the parser takes, for completion."""
        return tuple(self._actions)

    def commands(self) -> dict[str, Parser]:
        """Return the parsers of the commands below."""
        below = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return {name: parser for action in below for name, parser in action.choices.items()}


def add_commands(parser: Parser, commands: Iterable[tuple[str, str]], *, dest: str) -> dict[str, Parser]:
    """Give a parser commands below it.

    Parameters
    ----------
    parser
        The parser above.
    commands
        Name and one line of help of each.
    dest
        Attribute of the parsed words that names the chosen command.

    Returns
    -------
    dict
        The parser of each command, which has no options yet.
    """
    below = parser.add_subparsers(dest=dest, metavar="COMMAND", title="commands")
    return {name: below.add_parser(name, help=text, description=text) for name, text in commands}


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON document instead of tables")


def choice_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Return a type that takes one of the choices."""

    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(choices)}{did_you_mean(text, choices)}"
            )
        return text

    choose.choices = tuple(choices)  # type: ignore[attr-defined]  # completion reads them
    return choose


def path_of(text: str) -> Path:
    """Take a path: an empty one, as of a variable that is not set, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def number_from(kind: type[int | float], least: float, most: float | None = None) -> Callable[[str], float]:
    """Return a type that takes a number within bounds, both of which it may be."""

    def parse(text: str) -> float:
        bounds = f"of at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        what = "a whole number" if kind is int else "a number"
        try:
            number = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} {bounds}") from None
        if not (least <= number and (most is None or number <= most)) or number == float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not {what} {bounds}")
        return number

    return parse
