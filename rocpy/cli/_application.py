# SPDX-License-Identifier: MIT
"""Puts the commands together; a command's own module says what it does."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rocpy {metadata.version('rocpy')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Matrix products with fused epilogues, on AMD GPUs and on any CPU."""


def application() -> typer.Typer:
    """Return the application with every command of this installation."""
    from rocpy.cli import bench, demo, doctor, info, rccl, tune

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    app.command("info")(info.info)
    app.command("doctor")(doctor.doctor)
    app.command("demo")(demo.demo)
    app.command("bench")(bench.bench)
    app.add_typer(tune.application(), name="tune")
    app.add_typer(rccl.application(), name="rccl")
    return app
