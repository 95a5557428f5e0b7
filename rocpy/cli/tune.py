# SPDX-License-Identifier: MIT
"""`rocpy tune`: measures the problems of a file or of a program, and shows, exchanges and clears what was measured."""

from __future__ import annotations

import datetime as dt
import json
import runpy
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocpy.cli._output import EXIT_PROBLEM, EXIT_USAGE, JsonFlag, console, errors, print_json, table
from rocpy.errors import RocpyError

if TYPE_CHECKING:
    from rocpy.tuning import Database, Record, Shapes, TuningReport


class Format(StrEnum):
    """What records are written as."""

    json = "json"
    tunableop = "tunableop"
    hipblaslt = "hipblaslt"


DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="File of records; by default that of ROCPY_TUNING_DB.")
]
AllFlag = Annotated[bool, typer.Option("--all", help="Records of every environment, not of this one alone.")]


def application() -> typer.Typer:
    """Return the commands under `rocpy tune`."""
    app = typer.Typer(no_args_is_help=True, help="Measure which algorithms are the fastest, and keep the answers.")
    for command in (run, show, export, clear):
        app.command(command.__name__)(command)
    app.command("list")(list_records)
    app.command("import")(import_records)
    return app


def run(
    source: Annotated[
        Path, typer.Argument(help="Problems (.json, as rocpy.tuning.record() saves them) or a program (.py).")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="Words for the program.")] = None,
    budget_ms: Annotated[float, typer.Option("--budget-ms", help="What each problem may take.")] = 1000.0,
    again: Annotated[bool, typer.Option("--again", help="Measure also what has a record that can be used.")] = False,
    shapes: Annotated[
        Path | None, typer.Option("--save-shapes", help="Write the problems that the program met to this file.")
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure problems and store the choices; a program is run first, to see which problems it meets.

    Leaves with 0, 1 if a problem could not be measured or the program failed, 2 for wrong usage, 3 if no platform can
    be used.
    """
    problems = _problems(source, arguments or [], as_json)
    if shapes is not None:
        problems.save(shapes)
    _use(database)
    reports, failures = _tune_all(problems, budget_ms, again)
    if as_json:
        print_json({"reports": [report.to_dict() for report in reports], "failures": failures})
    else:
        rows = [
            (
                report.problem,
                report.best.name or f"#{report.best.id}",
                _milliseconds(report),
                f"{report.gain:.2f}",
                report.reason,
            )
            for report in reports
        ]
        console().print(table("tuned", ("problem", "algorithm", "ms", "gain", ""), rows))
        for failure in failures:
            errors().print(f"{failure['problem']}: {failure['error']}", markup=False)
    if failures:
        raise typer.Exit(EXIT_PROBLEM)


def _milliseconds(report: TuningReport) -> str:
    return "" if report.best.elapsed_ms is None else f"{report.best.elapsed_ms:.4g}"


def _problems(source: Path, arguments: list[str], as_json: bool) -> Shapes:
    from rocpy.tuning import Shapes, record

    if not source.is_file():
        _wrong(f"there is no file {source}")
    if source.suffix == ".json":
        return Shapes.load(source)
    if source.suffix != ".py":
        _wrong(f"{source}: a file of problems ends in .json, a program in .py")
    before, sys.argv = sys.argv, [str(source), *arguments]
    stdout = sys.stdout
    try:
        with record() as problems:
            if as_json:
                sys.stdout = sys.stderr  # what the program prints is no part of the document
            runpy.run_path(str(source), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            errors().print(f"{source} left with {error.code}", markup=False)
            raise typer.Exit(EXIT_PROBLEM) from None
    finally:
        sys.argv, sys.stdout = before, stdout
    return problems


def _tune_all(problems: Shapes, budget_ms: float, again: bool) -> tuple[list[TuningReport], list[dict[str, str]]]:
    from rich.progress import Progress

    from rocpy.tuning._live import tune
    from rocpy.tuning._operands import product_of

    reports, failures = [], []
    with Progress(console=errors(), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("tuning", total=len(problems))
        for problem in problems:
            progress.update(task, description=str(problem))
            try:
                with product_of(problem) as product:
                    reports.append(tune(product, budget_ms=budget_ms, force=again))
            except RocpyError as error:
                failures.append({"problem": str(problem), "error": f"{type(error).__name__}: {error}"})
            progress.advance(task)
    return reports, failures


def list_records(all_environments: AllFlag = False, database: DatabaseOption = None, as_json: JsonFlag = False) -> None:
    """List the records of this environment."""
    records = _records(_use(database), all_environments)
    if as_json:
        print_json([asdict(record) for record in records])
        return
    rows = [
        (
            place,
            _problem_text(record),
            record.kernel or f"#{record.solution}",
            f"{record.measured_us:.1f}",
            f"{record.gain:.2f}",
            dt.datetime.fromtimestamp(record.date, dt.UTC).strftime("%Y-%m-%d"),
        )
        for place, record in enumerate(records)
    ]
    console().print(table("records", ("", "problem", "kernel", "us", "gain", "date"), rows))


def show(
    number: Annotated[int, typer.Argument(help="Number of the record, as `rocpy tune list` gives it.")],
    all_environments: AllFlag = False,
    database: DatabaseOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one record with its whole key."""
    records = _records(_use(database), all_environments)
    if not 0 <= number < len(records):
        _wrong(f"there is no record {number}; there are {len(records)}, numbered from 0")
    facts = asdict(records[number])
    for name in ("scope", "key", "problem"):
        facts[name] = json.loads(facts[name])
    if as_json:
        print_json(facts)
        return
    parts = {name: facts.pop(name) for name in ("scope", "key", "problem")}
    console().print(table(_problem_text(records[number]), ("", ""), facts.items()))
    for title, part in (("environment", parts["scope"]), ("key", parts["key"])):
        console().print()
        console().print(table(title, ("", ""), part.items()))


def export(
    path: Annotated[Path, typer.Argument(help="File to write; - for standard output.")],
    form: Annotated[Format, typer.Option("--format", help="rocpy's JSON, TunableOp's CSV or hipBLASLt's file.")] = (
        Format.json
    ),
    all_environments: AllFlag = False,
    database: DatabaseOption = None,
) -> None:
    """Write the records of this environment to a file. Leaves with 1 if none of them can be said in that format."""
    from rocpy.tuning import export_hipblaslt, export_json, export_tunableop

    records = _records(_use(database), all_environments)
    text, left_out = export_json(records), 0
    if form is not Format.json:
        text, left_out = (export_tunableop if form is Format.tunableop else export_hipblaslt)(records)
    if left_out:
        errors().print(f"{left_out} of {len(records)} records cannot be said in this format and are left out")
    if records and left_out == len(records):
        raise typer.Exit(EXIT_PROBLEM)
    if str(path) == "-":
        typer.echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8")


def import_records(
    paths: Annotated[list[Path], typer.Argument(help="JSON files of records, or other databases.")],
    database: DatabaseOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take records from files; of two for one problem the newer one stays."""
    from rocpy.tuning import Database, import_json

    base = _use(database)
    taken = {}
    for path in paths:
        if not path.is_file():
            _wrong(f"there is no file {path}")
        if path.suffix == ".json":
            other = Database([])
            other.store(*import_json(path.read_text(encoding="utf-8")))
        else:
            other = Database([path])
        taken[str(path)] = base.merge(other)
    if as_json:
        print_json(taken)
    else:
        console().print(table("taken", ("file", "records"), taken.items()))


def clear(
    all_environments: AllFlag = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: DatabaseOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete the records of this environment. Leaves with 1 if the answer is no."""
    base = _use(database)
    count = len(_records(base, all_environments))
    if count and not yes and not typer.confirm(f"Delete {count} records from {base.path}?", err=True):
        raise typer.Exit(EXIT_PROBLEM)
    from rocpy.tuning import scope

    gone = base.clear(None if all_environments else scope())
    if as_json:
        print_json({"deleted": gone})
    else:
        console().print(f"deleted {gone}")


def _use(path: Path | None) -> Database:
    from rocpy.tuning import database

    if path is not None:
        database.use(database.Database([path]))
    return database.current()


def _records(base: Database, all_environments: bool) -> list[Record]:
    from rocpy.tuning import scope

    found = base.records(None if all_environments else scope())
    return sorted(found, key=lambda record: (record.scope, record.key))


def _problem_text(record: Record) -> str:
    from rocpy.blaslt import Problem

    try:
        return str(Problem.from_json(record.problem))
    except (RocpyError, ValueError, KeyError, TypeError):
        return record.problem


def _wrong(message: str) -> None:
    errors().print(message, markup=False)
    raise typer.Exit(EXIT_USAGE)
