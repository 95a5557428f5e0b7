# SPDX-License-Identifier: MIT
"""Puts the commands together; a command's own module says what it takes and does, and is loaded when it is used."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from rocpy._messages.distribution import version
from rocpy._messages.suggestions import did_you_mean
from rocpy.cli._output import EXIT_USAGE, UsageError, say
from rocpy.cli._parser import EXIT_CODES, Parser, Run, add_commands

# Each has a module of its name, with _ for -, with configure(parser), which also sets the function that runs it.
COMMANDS = {
    "info": "Show platform, devices, libraries and environment.",
    "doctor": "Check for common problems with ROCm, each with its fix; --selftest compares with references.",
    "demo": "Show the accuracy and speed of the fused product here, compared with numpy and torch.",
    "bench": "Compare the speed of rocpy with numpy, torch and nvmath-python, where they are installed.",
    "tune": "Measure which algorithms are fastest, and store the results.",
    "rccl": "Show the state of communicators: current calls, ranks that are behind, and problems.",
    "report": "Render the reports of self-tests, of one machine or many, as one page.",
    "rocm-tree": "Lay out a stand-in ROCm tree over the host platform, for programs that link AMD's libraries.",
    "run": "Run a program that links AMD's libraries on the host platform: rocpy run -- python app.py.",
    "completion": "Print the script that completes rocpy's commands and options in a shell.",
}


class ShowVersion(argparse.Action):
    """Says the version, which only this option looks up."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        say(f"rocpy {version()}")
        parser.exit()


def parser_for(words: Sequence[str]) -> Parser:
    """Return the parser, with the options of the command that the words name."""
    parser = Parser(
        prog="rocpy",
        description="Matrix products with fused epilogues, on AMD GPUs and on any CPU.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action=ShowVersion, help="show the version and exit")
    below = add_commands(parser, COMMANDS.items(), dest="command")
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen in below:
        importlib.import_module(f"rocpy.cli.{chosen.replace('-', '_')}").configure(below[chosen])
    elif chosen is not None:
        raise UsageError(f"rocpy: there is no command {chosen!r}{did_you_mean(chosen, COMMANDS)}; see rocpy --help")
    return parser


def run_command(words: Sequence[str]) -> int:
    """Run the command that the words name and return its exit code.

    Words after ``--`` belong to a program that the command runs.
    """
    words = list(words)
    before, after = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = parser_for(before)
    arguments, unknown = parser.parse_known_args(before)
    if arguments.command is None:
        parser.refuse_unknown(unknown)
        say(parser.format_help().rstrip())
        return EXIT_USAGE
    chosen: Parser = arguments.parser
    chosen.refuse_unknown(unknown)
    if after and not arguments.after_dashes:
        chosen.error(f"unexpected -- {after[0]}")
    arguments.program_arguments = after
    return int(arguments.run(arguments))


def set_run(parser: Parser, function: Run, *, after_dashes: str = "") -> None:
    """Set the function that runs what the parser took, and what the words after ``--`` are, empty for none."""
    parser.set_defaults(run=function, parser=parser, after_dashes=after_dashes)


def set_help(parser: Parser) -> None:
    """Let a command that has commands below it show its help when none is named."""

    def show_help(_: Arguments) -> int:
        say(parser.format_help().rstrip())
        return EXIT_USAGE

    set_run(parser, show_help)


Arguments = argparse.Namespace
