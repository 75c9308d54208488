"""The runbook: a page for each code of an error or an alarm. It ships with the program, so it is there without a network.

The pages are written in ``docs/runbook``. The wheel holds them as ``headrace/runbook``; in a checkout they are read where
they are written. Servers and agents answer ``GET /runbook/{code}`` with them, and ``headrace explain`` prints them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from headrace.errors.problem import RUNBOOK_PATH

PAGE_TYPE: Final = "text/plain; charset=utf-8"
"""Markdown, under a type that every browser shows instead of saving it."""

CODE_CHARS_MAX: Final = 80
"""Longer is no code, and no file's name everywhere."""

_CODE: Final = re.compile(r"[a-z]+(?:-[a-z]+)*")
_PACKAGED: Final = Path(__file__).parents[1] / "runbook"
_WRITTEN: Final = Path(__file__).parents[3] / "docs" / "runbook"


@cache
def runbook_folder() -> Path:
    """Return the folder that holds the pages."""
    return _PACKAGED if _PACKAGED.is_dir() else _WRITTEN


def runbook_codes() -> list[str]:
    """Return every code that has a page, sorted."""
    return sorted(page.stem for page in runbook_folder().glob("*.md") if _CODE.fullmatch(page.stem))


def runbook_page(code: str) -> str | None:
    """Return the page of ``code`` as Markdown; None if there is none. ``code`` may be anything that somebody sent."""
    if len(code) > CODE_CHARS_MAX or not _CODE.fullmatch(code):
        return None
    page = runbook_folder() / f"{code}.md"
    return page.read_text(encoding="utf-8") if page.is_file() else None


def addressed_page(path: str) -> str | None:
    """Return the page at the address ``path`` (``/runbook/{code}``) of an HTTP face; None if there is none."""
    return (
        runbook_page(path.removeprefix(f"{RUNBOOK_PATH}/")) if path.startswith(f"{RUNBOOK_PATH}/") else None
    )
