"""The reference pages are what the code says, and what the README names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, by_code, every_error

ROOT = Path(__file__).parents[3]


def test_error_page_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_code_is_unique_and_finds_its_class() -> None:
    kinds = [kind for kind in every_error() if kind.__module__.startswith("headrace.errors")]
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(by_code(kind.code) is kind for kind in kinds)
    assert by_code("of-a-later-version") is HeadraceError


def test_every_error_says_what_to_do() -> None:
    for kind in every_error():
        assert kind.hint, kind
        assert kind.__doc__, kind
        assert kind.exit_code in (1, 2, 3, 4), kind


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_tests_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", text):
        assert (page.parent / target).exists(), f"{page}: {target}"
    for named in re.findall(r"`((?:tests|src|scripts|docs)/[\w./-]+)`", text):
        assert (ROOT / named).exists(), f"{page}: {named}"
