"""The journal that benches read has every entry that it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.support.journal import FEED, write_journal
from headrace.log.files.store import FileStore


@pytest.mark.parametrize(("entries", "per_frame"), [(7, 1), (150_300, 1_000), (5, 1_000)])
def test_nothing_is_left_out(tmp_path: Path, entries: int, per_frame: int) -> None:
    write_journal(tmp_path, entries, per_frame)
    store = FileStore(tmp_path)
    tail = store.tail(FEED)
    store.close()
    assert tail is not None
    assert tail.head == entries
