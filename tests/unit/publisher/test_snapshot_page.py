"""The example in docs/formats/snapshot.md is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.publisher.snapshot.draft import Draft
from headrace.publisher.sqlite.source import state_reader
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import parse_dsn
from tests.states import parse_body, take
from tests.unit.publisher.outboxes import AGENT, FEED, PLACE, application, attach, claim, opened

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "snapshot.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_is_true(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with application(path) as app:
        app.executescript(block("sql"))
    with opened(path) as source:
        attach(source, "item")
        claim(source, PLACE._replace(incarnation="7c9e6679-7425-40de-944b-e07fc1f90ae7"))
        place, lines = take(source, state_reader(parse_dsn(f"sqlite:///{path}"), FEED, None), FEED, AGENT)
    folder = tmp_path / "018f3e0a-4c1e-4f7e-9a53-2f0d1c9b8e11.making"
    folder.mkdir()
    draft = Draft(folder, FEED, Disk(), lambda _: None)
    draft.write_state(place, lines, 1_700_000_000_000)
    body = (folder / "identity").read_bytes()
    assert parse_body(body).sequence_id == place.sequence_id
    assert body.decode() == block("json")
