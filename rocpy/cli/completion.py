# SPDX-License-Identifier: MIT
"""`rocpy completion`: scripts for shells, which ask `rocpy completion --candidates` for the words that may follow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from rocpy.cli._application import COMMANDS, Arguments, parser_for, set_run
from rocpy.cli._output import UsageError, say
from rocpy.cli._parser import Parser, choice_of

SCRIPTS = {
    "bash": """\
# Completion of rocpy for bash: add to ~/.bashrc
#   eval "$(rocpy completion bash)"
_rocpy() {
  local IFS=$'\\n'
  COMPREPLY=($(rocpy completion --candidates -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _rocpy rocpy
""",
    "zsh": """\
# Completion of rocpy for zsh: add to ~/.zshrc, after compinit
#   eval "$(rocpy completion zsh)"
_rocpy() {
  local -a candidates
  candidates=(${(f)"$(rocpy completion --candidates -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#candidates )); then compadd -- $candidates; else _files; fi
}
compdef _rocpy rocpy
""",
    "fish": """\
# Completion of rocpy for fish: save as ~/.config/fish/completions/rocpy.fish
#   rocpy completion fish > ~/.config/fish/completions/rocpy.fish
complete -c rocpy -a '(rocpy completion --candidates -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "shell", nargs="?", metavar="SHELL", type=choice_of(tuple(SCRIPTS)), help=f"one of {', '.join(SCRIPTS)}"
    )
    parser.add_argument("--candidates", action="store_true", help=argparse.SUPPRESS)
    set_run(parser, completion, after_dashes="the words to complete")


def completion(arguments: Arguments) -> int:
    """Print the script for a shell, or the words that may stand where the last one after -- does."""
    if arguments.candidates:
        for word in candidates(arguments.program_arguments):
            say(word)
        return 0
    if arguments.shell is None:
        raise UsageError(f"rocpy completion: name the shell: {', '.join(SCRIPTS)}")
    say(SCRIPTS[arguments.shell].rstrip())
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last word.

    Parameters
    ----------
    words
        The words after ``rocpy``, the last of which is not complete and may be empty.

    Returns
    -------
    list of str
        Words that begin as it does; empty where a file or a value of the user's belongs.
    """
    *before, prefix = words or [""]
    chosen = next((word for word in before if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        return []
    parser = parser_for(before)
    previous = None
    for word in before:
        below = parser.commands()
        if word in below:
            parser = below[word]
        previous = word
    words_after = list(_following(parser, previous))
    return sorted({word for word in words_after if word.startswith(prefix) and (prefix or not word.startswith("-"))})


def _following(parser: Parser, previous: str | None) -> Iterator[str]:
    actions = list(parser.actions())
    for action in actions:
        if previous in action.option_strings and action.nargs != 0:
            yield from _values(action)
            return
    yield from parser.commands()
    for action in actions:
        yield from action.option_strings
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            yield from _values(action)


def _values(action: argparse.Action) -> Iterator[str]:
    """Yield the values that an option or a positional word takes, where they are known."""
    yield from getattr(action.type, "choices", ())
