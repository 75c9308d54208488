"""The example in docs/formats/attached-change.md is what comes out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from headrace.publisher.marked import MarkedRow
from tests.unit.publisher.outboxes import application, attach, claim, drain, opened

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "attached-change.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def shown(row: MarkedRow) -> dict[str, Any]:
    """Return the row as the page shows it."""
    members = {
        "key": row.key,
        "op": row.op,
        "control": row.control,
        "copy": row.copy or None,
        "changed": None if row.changed is None else list(row.changed),
        "changes": row.changes.decode(),
        "before": None if row.before is None else row.before.decode(),
    }
    return {name: value for name, value in members.items() if value is not None}


def told(line: str) -> dict[str, Any]:
    """Return a line of the page with its rows as text, so that numbers are compared as they are written."""
    document = json.loads(line, parse_float=lambda text: f"float {text}")
    for name in ("changes", "before"):
        if name in document:
            text = json.dumps(document[name], ensure_ascii=False, separators=(",", ":"))
            document[name] = re.sub(r'"float ([^"]*)"', r"\1", text)
    return dict(document)


def test_the_example_is_true(tmp_path: Path) -> None:
    before, after = re.split(r"--.*\n", block("sql"))
    with application(tmp_path / "bank.db") as app:
        app.executescript(before)
        with opened(tmp_path / "bank.db") as source:
            attach(source, "account", before=True)
            app.executescript(after)
            claim(source)
            rows = drain(source)
    assert [shown(row) for row in rows] == [told(line) for line in block("json").splitlines()]
