"""What every metadata database promises of the progress that it keeps (``ProgressRows`` in its contract)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from headrace.log.metadata.contract import ProgressRow
from headrace.log.metadata.rows import PROGRESS, Key
from tests.contract.test_metadata_damage import Kind, Kit, postgres, sqlite


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Each kind in turn, empty."""
    kind: Kind = request.param
    yield from kind(request)


def row(name: str, feed: str = "f", *, at_ms: int = 5, points: bytes = b"\x01") -> ProgressRow:
    return ProgressRow("listener", "", name, feed, "acked", "i", "", at_ms, points)


def test_rows_are_changed_by_what_stands_and_found_by_feed(kit: Kit) -> None:
    rows, seen = kit.metadata.progress, []

    def add(key: Key, known: ProgressRow | None, *, points: bytes) -> ProgressRow | None:
        seen.append(known)
        return row(key[2], key[3], points=(known.points if known is not None else b"") + points)

    keys = [PROGRESS.key_of(row("b")), PROGRESS.key_of(row("a")), PROGRESS.key_of(row("a", ""))]
    rows.change(keys, partial(add, points=b"\x01"))
    assert seen == [None, None, None]
    rows.change(keys[:1], partial(add, points=b"\x02"))
    assert seen[3:] == [row("b")]
    assert rows.of_feed("f") == [row("a"), row("b", points=b"\x01\x02")]
    assert rows.of_feed("") == [row("a", "")]
    assert rows.of_feed("g") == []
    rows.change(keys[:1], lambda key, known: None)
    assert rows.of_feed("f") == [row("a"), row("b", points=b"\x01\x02")]
    assert kit.metadata.check() == []


def test_what_has_not_moved_for_long_is_forgotten(kit: Kit) -> None:
    rows = kit.metadata.progress
    ages = {"a": 1, "b": 2, "c": 3}
    rows.change(
        [PROGRESS.key_of(row(name)) for name in ages], lambda key, known: row(key[2], at_ms=ages[key[2]])
    )
    assert rows.forget(3, 1) == 1
    assert [one.name for one in rows.of_feed("f")] == ["b", "c"]
    assert rows.forget(3, 10) == 1
    assert rows.forget(3, 10) == 0
    assert [one.name for one in rows.of_feed("f")] == ["c"]
