"""The root command: the registry, and how errors and interrupts come out of every command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cyclopts import App

from headrace import __version__
from headrace.cli import app as cli
from headrace.errors import Fenced, Usage, every_error


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Register a command ``fail`` that raises ``error``."""
    app = App(name="fail")

    @app.default
    def fail() -> None:
        raise error

    monkeypatch.setattr(sys.modules[__name__], "FAILING", app, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "fail", cli.Command(f"{__name__}:FAILING", "Fails."))


FAILING = App(name="fail")


def test_help_and_version_import_no_command() -> None:
    script = (
        "import sys; from headrace.cli.app import main; main(sys.argv[1:]);"
        "print([name for name in sys.modules if name.startswith(('headrace.server', 'headrace.log', 'structlog'))])"
    )
    for words in (["--help"], ["--version"], []):
        done = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]", words


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_registered_command_is_there_under_its_name(name: str) -> None:
    assert cli.root()[name].name == (name,)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_error_is_three_lines_and_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_with(monkeypatch, Fenced("a newer one runs", epoch=7))
    assert cli.main(["fail"]) == Fenced.exit_code == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["error: a newer one runs", "code: fenced", f"hint: {Fenced.hint}"]


def test_json_error_is_one_document_with_its_members(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(name="fail")

    @app.default
    def fail(*, json: bool = False) -> None:
        raise Fenced("a newer one runs", epoch=7)

    monkeypatch.setattr(sys.modules[__name__], "FAILING", app)
    monkeypatch.setitem(cli.COMMANDS, "fail", cli.Command(f"{__name__}:FAILING", "Fails."))
    assert cli.main(["fail", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {
        "epoch": 7, "code": "fenced", "detail": "a newer one runs", "hint": Fenced.hint,
    }  # fmt: skip


def test_interrupt_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(monkeypatch, KeyboardInterrupt())
    assert cli.main(["fail"]) == 130
    assert capsys.readouterr().err == ""


def test_defect_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_with(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


@pytest.mark.parametrize(
    "words", [["serv"], ["serve", "--colour"], ["serve", "more"], ["serve", "--http"], ["-x"]], ids=" ".join
)
def test_wrong_call_is_a_usage_error_that_names_the_help(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main(words) == Usage.exit_code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "code: usage"
    assert "--help" in lines[2]


def test_exit_codes_are_the_five_documented_ones() -> None:
    assert {kind.exit_code for kind in every_error()} <= {0, 1, 2, 3, 4}
