# SPDX-License-Identifier: MIT
"""`rocpy tune`: measures the problems of a file or of a program, and shows, exchanges and clears what was measured."""

from __future__ import annotations

import datetime as dt
import json
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rocpy._messages.modules import imported
from rocpy.cli._application import Arguments, set_help, set_run
from rocpy.cli._output import (
    EXIT_PROBLEM,
    UsageError,
    counted,
    prepare_streams,
    print_json,
    print_table,
    progress,
    say,
    warn,
    writable,
)
from rocpy.cli._parser import Parser, add_commands, add_json, choice_of, number_from, path_of
from rocpy.errors import RocpyError

if TYPE_CHECKING:
    from rocpy.tuning import Database, Record, Shapes, TuningReport

Document = TypeVar("Document")
FORMATS = ("json", "tunableop", "hipblaslt")
COMMANDS = {
    "run": "Measure problems and store the choices; a program is run first, to record its problems.",
    "list": "List the records of this environment.",
    "show": "Show one record with its complete key.",
    "export": "Write the records of this environment to a file.",
    "import": "Import records from files; of two records for one problem the newer is used.",
    "clear": "Delete the records of this environment.",
}


def configure(parser: Parser) -> None:
    """Add the commands below `rocpy tune`."""
    below = add_commands(parser, COMMANDS.items(), dest="tune_command")
    _configure_run(below["run"])
    below["show"].add_argument(
        "number", metavar="NUMBER", type=number_from(int, 0), help="number of the record, as `rocpy tune list` shows it"
    )
    below["export"].add_argument("path", metavar="FILE", help="file to write; - for standard output")
    below["export"].add_argument(
        "--format",
        dest="form",
        type=choice_of(FORMATS),
        default="json",
        metavar="|".join(FORMATS),
        help="rocpy's JSON, TunableOp's CSV or hipBLASLt's file (default: json)",
    )
    below["import"].add_argument(
        "paths", metavar="FILE", type=path_of, nargs="+", help="JSON files of records, or other databases"
    )
    below["clear"].add_argument("--yes", action="store_true", help="do not ask for confirmation")
    for name in ("list", "show", "export", "clear"):
        below[name].add_argument(
            "--all",
            dest="all_environments",
            action="store_true",
            help="records of every environment, not only of this one",
        )
    functions = {"run": run, "list": list_records, "show": show, "export": export, "import": import_records}
    for name, function in (functions | {"clear": clear}).items():
        below[name].add_argument(
            "--database", type=path_of, metavar="FILE", help="file of records (default: those in ROCPY_TUNING_DB)"
        )
        add_json(below[name])
        set_run(below[name], function, after_dashes="the program's own options" if name == "run" else "")
    set_help(parser)


def _configure_run(parser: Parser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        type=path_of,
        help="problems (.json, as rocpy.tuning.record() saves them) or a program (.py)",
    )
    parser.add_argument(
        "words", nargs="*", default=[], metavar="ARGS", help="arguments for the program; put its options after --"
    )
    parser.add_argument(
        "--budget-ms",
        type=number_from(float, 0.001),
        default=1000.0,
        metavar="MS",
        help="time for each problem in milliseconds (default: 1000)",
    )
    parser.add_argument("--again", action="store_true", help="measure problems again even if a usable record exists")
    parser.add_argument("--save-shapes", type=path_of, metavar="FILE", help="write the program's problems to this file")


def run(arguments: Arguments) -> int:
    """Measure problems and store the choices; a problem that could not be measured is exit code 1."""
    command = "rocpy tune run"
    if arguments.save_shapes is not None:
        with suppress(OSError):  # in a folder that is gone no file can be written, which is told below
            arguments.save_shapes = arguments.save_shapes.absolute()  # the program may change the folder
    with writable(arguments.save_shapes, command, "--save-shapes"), _database(arguments.database, command):
        return _run(arguments)


def _run(arguments: Arguments) -> int:
    problems, code = _problems(arguments.source, [*arguments.words, *arguments.program_arguments], arguments.as_json)
    if code:
        warn(f"rocpy tune run: {arguments.source} exited with {code}; nothing was measured")
        return code
    if arguments.save_shapes is not None:
        problems.save(arguments.save_shapes)
    reports, failures = _tune_all(problems, arguments.budget_ms, arguments.again)
    if arguments.as_json:
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
        print_table("tuned", ("problem", "algorithm", "ms", "gain", ""), rows)
        for failure in failures:
            warn(f"{failure['problem']}: {failure['error']}")
    return EXIT_PROBLEM if failures else 0


def _milliseconds(report: TuningReport) -> str:
    return "" if report.best.elapsed_ms is None else f"{report.best.elapsed_ms:.4g}"


def _problems(source: Path, arguments: list[str], as_json: bool) -> tuple[Shapes, int]:
    """Return the problems of a file or of a program, and the program's exit code."""
    from rocpy.tuning import Shapes, record

    if not source.is_file():
        raise UsageError(f"rocpy tune run: there is no file {source}")
    if source.suffix == ".json":
        if arguments:
            raise UsageError(f"rocpy tune run: {source} is a file of problems, which takes no {' '.join(arguments)}")
        return _document(source, Shapes.from_json), 0
    if source.suffix != ".py":
        raise UsageError(f"rocpy tune run: {source}: a file of problems ends in .json, a program in .py")
    with record() as problems:
        return problems, _run_program(source, arguments, as_json)


def _run_to_its_end(source: Path) -> None:
    """Run a program as Python does, and wait for its threads, but for those that do not keep a process alive."""
    others = set(threading.enumerate())
    try:
        runpy.run_path(str(source), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    executors: Any = imported("concurrent.futures.thread")
    if executors is not None:
        executors._python_exit()  # Python's own handler: an executor's idle threads end when its work is done
        executors._shutdown = False  # the process goes on
    while threads := [one for one in threading.enumerate() if not one.daemon and one not in others]:
        for thread in threads:
            thread.join()


def _run_program(source: Path, arguments: list[str], as_json: bool) -> int:
    """Run a program in this process and return its exit code; its exceptions are its own, as Python prints them."""
    before, sys.argv, path = sys.argv, [str(source), *arguments], sys.path[:]
    streams = sys.stdin, sys.stdout, sys.stderr
    if not sys.flags.safe_path:
        sys.path[0] = str(source.resolve().parent)  # as Python does for a program: modules beside it are found
    try:
        if as_json:
            sys.stdout = sys.stderr  # what the program prints is no part of the document
        _run_to_its_end(source)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        prepare_streams()
        warn(str(error.code))
        return 1
    except Exception as error:  # noqa: BLE001  (whatever the program raises)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals["__name__"] in {__name__, "runpy"}:
            trace = trace.tb_next
        prepare_streams()
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    finally:
        (sys.stdin, sys.stdout, sys.stderr), sys.argv, sys.path[:] = streams, before, path
        prepare_streams()
    return 0


def _document(path: Path, read: Callable[[str], Document]) -> Document:
    """Return what a function reads in a file of JSON; the file is named where that fails."""
    try:
        return read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"rocpy tune: cannot read {path} ({error.strerror})") from None
    except ValueError as error:  # rocpy's InvalidProblemError is one, as is that of a text that is no UTF-8
        raise UsageError(f"rocpy tune: {path}: {error}") from None


def _tune_all(problems: Shapes, budget_ms: float, again: bool) -> tuple[list[TuningReport], list[dict[str, str]]]:
    from rocpy.tuning._live import tune
    from rocpy.tuning._operands import product_of

    reports, failures = [], []
    # A product of nothing has no algorithm, as of an empty batch of a program's data.
    wanted = [(one, options) for one, options in problems.with_options() if one.k and 0 not in one.result_shape]
    with progress(shown=True) as advance:
        for done, (problem, options) in enumerate(wanted):
            advance(done, len(wanted), str(problem))
            try:
                with product_of(problem, options) as product:
                    reports.append(tune(product, budget_ms=budget_ms, force=again))
            except RocpyError as error:
                failures.append({"problem": str(problem), "error": f"{type(error).__name__}: {error}"})
    return reports, failures


def list_records(arguments: Arguments) -> int:
    """List the records of this environment."""
    records = _records(_use(arguments.database), arguments.all_environments)
    if arguments.as_json:
        print_json([asdict(record) for record in records])
        return 0
    rows = [
        (
            number,
            _problem_text(record),
            record.kernel or f"#{record.solution}",
            f"{record.measured_us:.1f}",
            f"{record.gain:.2f}",
            f"{_time_of(record):%Y-%m-%d}",
        )
        for number, record in enumerate(records)
    ]
    print_table("records", ("", "problem", "kernel", "us", "gain", "date"), rows)
    return 0


def show(arguments: Arguments) -> int:
    """Show one record with its complete key."""
    records, number = _records(_use(arguments.database), arguments.all_environments), arguments.number
    if number >= len(records):
        raise UsageError(f"rocpy tune show: there is no record {number}; there are {len(records)}, numbered from 0")
    facts = asdict(records[number])
    for name in ("scope", "key", "problem"):
        facts[name] = _object_of(facts[name])
    if arguments.as_json:
        print_json(facts)
        return 0
    parts = {name: facts.pop(name) for name in ("scope", "key", "problem")}
    facts["date"] = f"{_time_of(records[number]):%Y-%m-%d %H:%M:%S} UTC"
    rows = [(name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in facts.items()]
    print_table(_problem_text(records[number]), ("", ""), rows)
    for title, part in (("environment", parts["scope"]), ("key", parts["key"])):
        say()
        print_table(title, ("", ""), part.items())
    return 0


def _time_of(record: Record) -> dt.datetime:
    return dt.datetime.fromtimestamp(record.date, dt.UTC)


def _object_of(text: str) -> dict[str, Any]:
    """Return the JSON object that a record holds, or the text itself of one that holds none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"text": text}


def export(arguments: Arguments) -> int:
    """Write the records of this environment to a file; exit code 1 if that format can express none of them."""
    from rocpy.tuning import export_hipblaslt, export_json, export_tunableop

    if arguments.path == "-" and arguments.as_json:
        raise UsageError("rocpy tune export: --json describes what was written; write to a file, not to -")
    target = None if arguments.path == "-" else Path(arguments.path)
    records = _records(_use(arguments.database), arguments.all_environments)
    text, left_out = export_json(records), 0
    if arguments.form != "json":
        text, left_out = (export_tunableop if arguments.form == "tunableop" else export_hipblaslt)(records)
    if left_out:
        warn(f"{left_out} of {len(records)} records cannot be expressed in this format and are omitted")
    if arguments.form != "json" and left_out == len(records):
        elsewhere = (
            "" if arguments.all_environments else " of this environment; --all exports those of every environment"
        )
        warn("nothing was written" if records else f"there is no record{elsewhere}; nothing was written")
        return EXIT_PROBLEM
    if target is None:
        sys.stdout.write(text)
    else:
        with writable(target, "rocpy tune export"):
            target.write_text(text, encoding="utf-8")
    if arguments.as_json:
        print_json({"file": arguments.path, "records": len(records) - left_out, "left_out": left_out})
    return 0


def import_records(arguments: Arguments) -> int:
    """Import records from files; of two records for one problem the newer is used."""
    from rocpy.tuning import Database, import_json
    from rocpy.tuning.database import read_records

    taken = {}
    with _database(arguments.database, "rocpy tune import") as base:
        for path in arguments.paths:
            if not path.is_file():
                raise UsageError(f"rocpy tune import: there is no file {path}")
            other = Database([])
            other.store(*(_document(path, import_json) if path.suffix == ".json" else read_records(path)))
            taken[str(path)] = base.merge(other)
    if arguments.as_json:
        print_json(taken)
    else:
        print_table("taken", ("file", "records"), taken.items())
    return 0


def clear(arguments: Arguments) -> int:
    """Delete the records of this environment; exit code 1 if the answer is no."""
    if arguments.as_json and not arguments.yes:
        raise UsageError("rocpy tune clear: --json cannot ask for confirmation; add --yes to delete the records")
    base = _use(arguments.database)
    records = _records(base, arguments.all_environments)
    count = sum(base.file_of(record.scope, record.key) in (base.path, None) for record in records)
    if count and not arguments.yes and not _confirm(f"Delete {counted(count, 'record')} from {base.path}?"):
        return EXIT_PROBLEM
    from rocpy.tuning import scope

    gone = base.clear(None if arguments.all_environments else scope())
    if arguments.as_json:
        print_json({"deleted": gone})
    else:
        rest = len(records) - gone
        say(f"deleted {counted(gone, 'record')}" + (f"; {rest} in files that are only read stay" if rest > 0 else ""))
    return 0


def _confirm(question: str) -> bool:
    """Ask on standard error; no answer at all is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _use(path: Path | None) -> Database:
    from rocpy.tuning import database

    if path is not None:
        database.use(_named(path))
    return database.current()


def _named(path: Path) -> Database:
    """Return the database in a file, which must not be something else."""
    from rocpy.tuning import Database

    base = Database([path])
    for file in base.files:
        file.check()
    return base


@contextmanager
def _database(path: Path | None, command: str) -> Iterator[Database]:
    """Use a database that records are written to; a file named by ``--database`` is tried first."""
    file = None if path is None else _named(path).path
    with writable(file, command, "--database", parents=True):
        yield _use(path)


def _records(base: Database, all_environments: bool) -> list[Record]:
    from rocpy.tuning import scope

    records = base.records(None if all_environments else scope())
    return sorted(records, key=lambda record: (record.scope, record.key))


def _problem_text(record: Record) -> str:
    from rocpy.blaslt import Problem

    try:
        return str(Problem.from_json(record.problem))
    except (RocpyError, ValueError, KeyError, TypeError):
        return record.problem
