"""What a command says of how far it is where nobody watches."""

from __future__ import annotations

import pytest

from headrace.cli import rate_progress as module
from headrace.cli.rate_progress import describe, rate_progress


def test_a_line_has_percent_rate_and_what_is_left() -> None:
    assert (
        describe("checking", 250_000_000, 1_000_000_000, 0.5)
        == "checking: 25 % of 1,000 MB, 500 MB/s, 2 s left"
    )
    assert describe("checking", 0, 0, 0.0) == "checking: 100 % of 0 MB, 0 MB/s"


def test_lines_go_to_stderr_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with rate_progress("checking") as tell:
        tell(1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    with rate_progress("checking") as tell:
        tell(1_000_000, 2_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("checking: 50 % of 2 MB")
