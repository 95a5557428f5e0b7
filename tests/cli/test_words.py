# SPDX-License-Identifier: MIT
"""What the command line says to wrong words, in narrow terminals, without rich, and to shells that complete words."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocpy.cli import _application, _output, completion, doctor, main
from rocpy.cli._output import UsageError


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command line in this process and return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_words(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        seen = capsys.readouterr()
        return ended.value.code, seen.out, seen.err

    return run_words


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("doctr", ["no command 'doctr'", "did you mean 'doctor'?", "rocpy --help"]),
        ("--versoin", ["no option --versoin", "did you mean '--version'?"]),
        ("info extra", ["rocpy info", "unexpected extra"]),
        ("info --jsno", ["no option --jsno", "did you mean '--json'?", "rocpy info --help"]),
        ("info -- extra", ["unexpected -- extra"]),
        ("doctor --tier huge", ["--tier", "'huge'", "quick, full"]),
        ("doctor --tier ful", ["did you mean 'full'?"]),
        ("doctor -r 4", ["4", "from 1 to 3"]),
        ("doctor --report other.json", ["--report", "add --selftest"]),
        ("doctor --tier quick", ["--tier", "add --selftest"]),
        ("doctor -r two", ["'two'", "whole number"]),
        ("doctor --pid 999999999", ["cannot see process 999999999", "running process"]),
        ("doctor --pid nobody", ["cannot see process nobody", "not a number"]),
        ("doctor --pid ../../etc", ["not a number"]),
        ("doctor --selftest --report no/such/folder/report.json", ["cannot write", "--report"]),
        ("bench matmull", ["'matmull'", "did you mean 'matmul'?"]),
        ("bench matmul --threads 0", ["--threads", "from 1 to 4096"]),
        ("bench counts --only 4x4x4", ["counts", "no groups", "--only"]),
        ("bench goals --list", ["goals", "no groups", "--list"]),
        ("bench --list --compare old.json new.json", ["--list", "--compare"]),
        ("bench --list --html page.html", ["--list", "--html"]),
        ("bench --compare old.json new.json --threads 2", ["--compare", "--threads"]),
        ("bench counts --isa avx2", ["counts", "--isa"]),
        ("bench goals --plot drawing.html", ["goals", "times nothing", "--plot"]),
        ("bench import --html /proc/page.html", ["cannot write /proc/page.html", "--html"]),
        ("bench import --output /proc/results", ["cannot write /proc/results", "--output"]),
        ("bench --compare old.json new.json --html /proc/page.html", ["cannot write /proc/page.html", "--html"]),
        ("rocm-tree folder --release 5.0", ["'5.0' is not one of 6.4, 7.0, 7.2;", "rocm-tree --help"]),
        ("run --json -- true", ["--json", "--report"]),
        ("bench matmul --plot drawing.jpg", ["drawing.jpg", ".png or .html"]),
        ("tune dance", ["'dance'", "rocpy tune --help"]),
        ("tune lst", ["no command 'lst'", "did you mean 'list'?", "rocpy tune --help"]),
        ("rccl statsu", ["no command 'statsu'", "did you mean 'status'?", "rocpy rccl --help"]),
        ("--json info", ["--json comes after the command: rocpy info --json"]),
        ("rccl --json status", ["--json comes after the command: rocpy rccl status --json"]),
        ("--jsno info", ["no option --jsno", "did you mean '--json'?"]),
        ("tune run missing.json", ["no file missing.json"]),
        ("tune run train.py --epochs 3", ["no option --epochs", "the program's own options come after --"]),
        ("tune run shapes.json x -- --epochs 3", ["shapes.json is a file of problems", "x --epochs 3"]),
        ("run app --epochs", ["no option --epochs", "the program and its arguments come after --"]),
        ("run app", ["unexpected app", "the program and its arguments come after --"]),
        ("tune run", ["FILE"]),
        ("tune export --format csv out", ["'csv'", "tunableop"]),
        ("tune export - --json", ["--json", "write to a file"]),
        ("tune export /proc/records.json", ["cannot write /proc/records.json", "another file"]),
        ("tune run shapes.json --save-shapes /proc/shapes.json", ["cannot write /proc/shapes.json", "--save-shapes"]),
        ("tune run shapes.json --database /proc/records", ["cannot write /proc/records", "--database"]),
        ("tune import records.json --database /proc/records", ["cannot write /proc/records", "--database"]),
        ("tune clear --json", ["--json", "--yes"]),
        ("tune show -1", ["-1"]),
        ("rccl trace --seconds -1", ["--seconds", "at least 0"]),
        ("rccl trace --seconds nan", ["--seconds", "at least 0"]),
        ("rccl trace --interval-s 0", ["--interval-s", "at least 0.01"]),
        ("rccl check -r 0", ["from 1 to 3"]),
        ("rccl status --address :", ["address", "':'", "host:port"]),
        ("rccl trace --address localhost:99999", ["address", "'localhost:99999'", "host:port"]),
        ("report", ["FILE"]),
        ("report missing.json", ["cannot read missing.json"]),
        ("report report.json --output /proc/page.html", ["cannot write /proc/page.html", "--output"]),
        ("completion tcsh", ["'tcsh'", "bash, zsh, fish"]),
        ("completion", ["name the shell"]),
    ],
)
def test_wrong_words_are_usage(run, words, parts):
    for name in ("report.json", "records.json", "shapes.json"):
        Path(name).write_text('{"cases": []}')
    code, out, err = run(*words.split())
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    for part in parts:
        assert part in err


@pytest.mark.parametrize(
    "words",
    [
        ("rocm-tree", ""),
        ("report", ""),
        ("report", "report.json", "--output", ""),
        ("bench", "matmul", "--output", ""),
        ("tune", "run", ""),
        ("tune", "import", ""),
        ("tune", "list", "--database", ""),
        ("doctor", "--selftest", "--report", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_folder(run, words, tmp_path):
    code, _, error = run(*words)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "the path is empty" in error


def test_only_words_that_are_required_are_missing(run):
    code, _, error = run("tune", "run")
    assert code == 2
    assert "FILE" in error
    assert "ARGS" not in error


@pytest.mark.parametrize("words", [[], ["tune"], ["rccl"]])
def test_no_command_shows_the_help(run, words):
    code, out, _ = run(*words)
    assert code == 2
    assert "usage: rocpy" in out


def commands():
    """Yield the words of every command, those that only have commands below them too."""
    yield []
    for name in _application.COMMANDS:
        yield [name]
        yield from ([name, below] for below in _application.parser_for([name]).commands()[name].commands())


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_help_fits_a_narrow_terminal(run, monkeypatch, command, option):
    monkeypatch.setenv("COLUMNS", "40")
    code, out, _ = run(*command, option)
    assert code == 0
    assert " ".join(["usage: rocpy", *command]) in out
    assert [line for line in out.splitlines() if len(line) > 40] == []


@pytest.mark.parametrize("library", ["rich", "plain"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_keep_every_word_at_any_width(capsys, monkeypatch, library, width):
    if library == "plain":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", str(width))
    long = "one two three four five six seven eight nine ten eleven twelve"
    _output.print_table("title", ("name", "path [x]", "count"), [("first", long, 3), (None, "[bold] text", 0)])
    text = capsys.readouterr().out
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert sorted(set(long.split()) - set(text.split())) == []
    assert "[bold]" in text
    assert "first" in text


def test_long_lines_are_folded(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _output.say_folded("host | a device with a long name | numpy 2.4 torch 2.13 | commit 0123456 | command\n")
    lines = capsys.readouterr().out.split("\n")
    assert max(map(len, lines)) <= 40
    assert lines[-2:] == ["", ""]


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"total": 1, "ok": 1, "failed": 0}, "1 case in 8.9 s: 1 ok, 0 failed; largest error 0.9998 of its bound"),
        ({"total": 2, "ok": 0, "wrong_natively": 2}, "2 cases in 8.9 s: 0 ok, 2 wrong natively; largest error"),
    ],
)
def test_the_summary_of_a_selftest(capsys, counts, text):
    facts = {**counts, "worst_ratio": 0.9997839946159551, "elapsed_s": 8.947}
    doctor._show_selftest({"cases": [], "summary": facts, "report": "report.json"})
    line = capsys.readouterr().out
    assert text in line
    assert line.endswith("; report in report.json\n")


def test_too_many_columns_become_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _output.print_table("title", ("processor", "bandwidth", "message"), [("a" * 20, "b" * 20, "c" * 20)])
    assert "  processor: " + "a" * 20 in capsys.readouterr().out


def test_a_word_that_is_too_long_for_its_column_is_folded(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", "40")
    _output.print_table("title", ("", ""), [("x", "y" * 100)])
    assert capsys.readouterr().out.count("y") == 100


@pytest.mark.parametrize("library", ["rich", "plain"])
def test_a_column_without_name_and_text_takes_no_part(capsys, monkeypatch, library):
    if library == "plain":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    _output.print_table("title", ("variable", "value", ""), [("ROCPY_PLATFORM", "host", None)])
    assert "ROCPY_PLATFORM" in capsys.readouterr().out


def test_interrupt_is_one_line(run, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_application, "parser_for", interrupted)
    assert run("info") == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m rocpy info | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "ROCPY_PLATFORM": "host"},
        timeout=120,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("platform host")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["b"], ["bench"]),
        ([""], sorted(_application.COMMANDS)),
        (["tune", "ex"], ["export"]),
        (["doctor", "--ti"], ["--tier"]),
        (["doctor", "--tier", ""], ["full", "quick"]),
        (["doctor", "--report", ""], []),
        (["bench", "mat"], ["matmul"]),
        (["tune", "export", "--format", "t"], ["tunableop"]),
        (["--ver"], ["--version"]),
        (["nonsense", ""], []),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_candidates(words, expected):
    assert completion.candidates(words) == expected


@pytest.mark.parametrize("shell", sorted(completion.SCRIPTS))
def test_script_is_accepted_by_its_shell(run, shell, tmp_path):
    code, out, _ = run("completion", shell)
    assert code == 0
    if shutil.which(shell) is None:
        pytest.skip(f"{shell}: not installed")
    (tmp_path / "script").write_text(out)
    assert subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True).returncode == 0


def test_bash_completes(tmp_path, run):
    bash = shutil.which("bash")
    _, script, _ = run("completion", "bash")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "rocpy").write_text(f'#!/bin/sh\nexec {sys.executable} -m rocpy "$@"\n')
    (folder / "rocpy").chmod(0o755)
    ask = script + 'COMP_WORDS=(rocpy doctor --tier q); COMP_CWORD=3; _rocpy; echo "${COMPREPLY[@]}"\n'
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run([bash, "-c", ask], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.stdout == "quick\n", done.stderr


def outcome(*statuses, **facts):
    cases = [{"name": f"case {i}", "status": status, "message": "off | by 2"} for i, status in enumerate(statuses)]
    return {"cases": cases, "summary": {"total": len(cases)}, **facts}


FACTS = {
    "tier": "quick",
    "call_us": 3.14159,
    "info": {
        "platform": {"name": "amd", "is_emulated": False},
        "devices": [{"name": "<Card>", "arch": "gfx942"}],
        "libraries": [{"name": "hip", "version": "7.2"}, {"name": "hipblaslt", "version": "1.2.2"}],
        "packages": {"rocpy": "0.1.0"},
    },
}


@pytest.mark.parametrize("form", ["text", "md", "html", "json"])
def test_report_renders_many(run, tmp_path, form):
    (tmp_path / "good.json").write_text(json.dumps(outcome("ok", "ok", "unsupported", **FACTS)))
    (tmp_path / "bad.json").write_text(json.dumps(outcome("ok", "failed", "error", "ok")))
    options = {"text": [], "json": ["--json"]}.get(form, ["--output", f"page.{form}"])
    code, text, _ = run("report", "good.json", "bad.json", *options)
    assert code == 1
    page = " ".join(text.split()) if form in {"text", "json"} else (tmp_path / f"page.{form}").read_text()
    for part in ("HIP", "7.2", "1.2.2", "0.1.0", "100.0%", "50.0%", "3.14", "gfx942", "good.json", "case 1", "case 2"):
        assert part in page
    if form == "html":
        assert "<Card>" not in page
    assert ("off \\| by 2" if form == "md" else "off | by 2") in page
    assert run("report", "good.json")[0] == 0


def test_a_page_and_a_document_at_once(run, tmp_path):
    (tmp_path / "good.json").write_text(json.dumps(outcome("ok", **FACTS)))
    code, text, _ = run("report", "good.json", "--output", "page.md", "--json")
    assert (code, json.loads(text)[0]["file"]) == (0, "good.json")
    assert "good.json" in (tmp_path / "page.md").read_text()


def test_every_command_but_completion_takes_json():
    names = {name for name, *_ in filter(None, commands()) if name not in ("completion", "tune", "rccl")}
    below = [words for words in commands() if len(words) == 2]
    assert len(below) == 9
    for words in [*([name] for name in names), *below]:
        parser = _application.parser_for(words)
        for word in words:
            parser = parser.commands()[word]
        assert any("--json" in action.option_strings for action in parser.actions()), words


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "[]", '{"cases": 3}', '{"cases": [1]}', '{"cases": [{"status": []}]}', "\0"]
)
def test_what_is_no_report_is_usage(run, tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    code, _, err = run("report", "other.json")
    assert code == 2
    assert "other.json" in err


@pytest.mark.parametrize(
    "info", [None, [], {"devices": 3, "libraries": {"a": 1}}, {"devices": [None]}, {"libraries": 1}]
)
def test_a_report_that_lacks_facts_is_rendered(run, tmp_path, info):
    (tmp_path / "old.json").write_text(json.dumps(outcome("ok", info=info)))
    code, out, _ = run("report", "old.json")
    assert code == 0
    assert "unknown" in out


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
@pytest.mark.parametrize(
    "more",
    [
        {"call_us": 10**400},
        {"tier": "\ud800"},
        {"info": {"libraries": [{"name": ["hip"], "version": {}}], "devices": [{"name": "\ud800"}], "packages": 3}},
        {"call_us": "fast", "tier": []},
    ],
)
def test_a_report_of_other_facts_is_rendered(run, tmp_path, form, more):
    (tmp_path / "odd.json").write_text(json.dumps(outcome("ok", **more)))
    code, text, err = run(
        "report", "odd.json", *{"text": [], "json": ["--json"]}.get(form, ["--output", f"page.{form}"])
    )
    assert (code, err) == (0, "")
    assert "100.0%" in text or "100.0%" in (tmp_path / f"page.{form}").read_text()


def test_a_report_is_not_lost(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(doctor.tempfile, "tempdir", None)
    folder = tmp_path / "a folder"
    folder.mkdir()
    path = doctor._write_report({"cases": [1, 2]}, folder)  # what cannot be written to
    assert json.loads(Path(path).read_text()) == {"cases": [1, 2]}
    assert path in capsys.readouterr().err


def test_words_after_two_dashes_belong_to_a_program(monkeypatch):
    seen = []
    from rocpy.cli import tune

    monkeypatch.setattr(tune, "run", lambda arguments: seen.append(arguments) or 0)
    assert _application.run_command(["tune", "run", "program.py", "word", "--again", "--", "--json", "x"]) == 0
    assert (seen[0].words, seen[0].program_arguments, seen[0].as_json) == (["word"], ["--json", "x"], False)
    with pytest.raises(UsageError):
        _application.run_command(["tune", "list", "--", "x"])


def test_an_interrupted_selftest_leaves_no_empty_report(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "_run_selftest", interrupted)
    assert run("doctor", "--selftest", "-r", "1") == (130, "", "interrupted\n")
    assert not doctor.DEFAULT_REPORT.exists()
    doctor.DEFAULT_REPORT.write_text("kept")
    assert run("doctor", "--selftest", "-r", "1")[0] == 130
    assert doctor.DEFAULT_REPORT.read_text() == "kept"


@pytest.mark.parametrize(("number", "code", "message"), [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, "")])
def test_an_interrupted_benchmark_ends_with_all_that_it_started(tmp_path, number, code, message):
    # A benchmark that starts a process, and tells when both wait.
    (tmp_path / "bench_import.py").write_text(
        "import pathlib, subprocess, sys\n"
        "below = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)\n"
        "print(below.pid, flush=True)\n"
        "below.wait()\n"
    )
    # Where the tests run in the background of a shell they ignore SIGINT, and what they start would, too.
    program = (
        "import pathlib, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from rocpy.cli import bench, main\n"
        f"bench.folder = lambda: pathlib.Path({str(tmp_path)!r})\nmain(['bench', 'import'])\n"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as command:
        below = Path("/proc") / command.stdout.readline().strip()
        os.kill(command.pid, getattr(signal, number))
        _, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (code, message)
    # Killed at the same time, and gone as soon as init has read its exit code.
    assert not below.exists() or (below / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


ABSENT = ("typer", "click", "rich", "pydantic", "matplotlib")


def test_package_and_command_line_need_three_packages():
    program = f"""
import contextlib, io, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
import rocpy
from rocpy.cli import _application, main

def ways(parser, *words):
    yield words
    for name, below in parser.commands().items():
        yield from ways(below, *words, name)

def said(*words):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            main(words)
        except SystemExit as ended:
            assert ended.code == 0, (words, ended.code)
    return text.getvalue()

count = 0
for name in _application.COMMANDS:
    for words in ways(_application.parser_for([name]), *()):
        if words[:1] == (name,) or not words:
            assert "usage: rocpy " + " ".join(words) in " ".join(said(*words, "--help").split()), words
            count += 1
assert "libraries" in said("info")
assert '"findings"' in said("doctor", "-r", "1", "--json")
known = sys.stdlib_module_names | {{"rocpy", "rocpy_torch_backend", "numpy", "ml_dtypes", "platformdirs"}}
files = {{name.partition(".")[0] for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}}
print(count, *sorted(name for name in files - known if not name.startswith("_")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "ROCPY_PLATFORM": "host", "COLUMNS": "200"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    count, *packages = done.stdout.split()
    assert int(count) >= 25
    assert packages == []
