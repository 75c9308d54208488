"""``headrace explain`` and ``headrace completion``: pages and scripts, without a network."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import app as cli
from headrace.runtime.runbook import runbook_codes, runbook_page


def test_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "feed-owned"]) == 0
    assert capsys.readouterr().out == runbook_page("feed-owned")
    assert cli.main(["explain", "feed-owned", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"code": "feed-owned", "page": runbook_page("feed-owned")}


def test_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 0
    assert capsys.readouterr().out.split() == runbook_codes()
    assert cli.main(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"codes": runbook_codes()}


def test_a_code_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "feed-ownd"]) == 2
    assert "Did you mean feed-owned?" in capsys.readouterr().err


def test_a_person_at_a_terminal_is_told_where_more_is() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "headrace.cli.app", "explain", "none"]
    with os.fdopen(theirs, "wb") as stderr:
        done = subprocess.run(words, stderr=stderr, stdout=subprocess.PIPE, timeout=60, check=False)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 2
    assert "more: headrace explain usage" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*cli.COMMANDS, "explain", "retention-bytes-max", "resume"):
        assert word in script, word
    program = shutil.which(shell)
    if program is not None:  # bash is everywhere
        path = tmp_path / "script"
        path.write_text(script, encoding="utf-8")
        subprocess.run([program, "-n", str(path)], check=True, timeout=60)


def test_bash_completes_a_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
    ask = (
        f"source {tmp_path}/script; COMP_WORDS=(headrace doc); COMP_CWORD=1; COMP_LINE='headrace doc'; COMP_POINT=12;"
        'complete -p headrace >/dev/null; function="$(complete -p headrace | sed -E "s/.*-F ([^ ]+).*/\\1/")";'
        '"$function" headrace doc headrace; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    assert "doctor" in done.stdout.split(), done.stderr
