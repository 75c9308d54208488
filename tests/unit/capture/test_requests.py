"""Requests for copies: kept until they have begun, answered where they can't be fulfilled, and never lost in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.requests import CopyRefusal, CopyRequests
from headrace.errors import ConfigInvalid
from headrace.runtime.disk import Disk

NOW_MS = 1_700_000_000_000
REFUSAL = CopyRefusal("table-not-found", "there is no table shop.x", "Name another.")


def requests(folder: Path, feed: str = "shop") -> CopyRequests:
    return CopyRequests(folder / "state", feed, Disk())


def test_a_request_waits_until_it_is_done(tmp_path: Path) -> None:
    asked, taken = requests(tmp_path), requests(tmp_path)
    assert taken.waiting() == []
    second = asked.submit("shop", "orders", NOW_MS + 1)
    first = asked.submit("shop", "users", NOW_MS)
    assert taken.waiting() == [first, second], "in the order of asking"
    assert (first.feed, first.database, first.table, first.asked_at_ms) == ("shop", "shop", "users", NOW_MS)
    taken.done(first.id)
    taken.done(first.id)
    assert taken.waiting() == [second]
    assert (asked.is_waiting(first.id), asked.is_waiting(second.id)) == (False, True)
    assert asked.take_refusal(first.id) is None


def test_a_capture_takes_requests_for_its_own_feed(tmp_path: Path) -> None:
    request = requests(tmp_path, "other").submit("shop", "orders", NOW_MS)
    assert requests(tmp_path).waiting() == []
    assert requests(tmp_path, "other").waiting() == [request]


def test_a_refusal_is_read_once(tmp_path: Path) -> None:
    asked = requests(tmp_path)
    request = asked.submit("shop", "x", NOW_MS)
    requests(tmp_path).refuse(request.id, REFUSAL)
    assert not asked.is_waiting(request.id)
    assert asked.take_refusal(request.id) == REFUSAL
    assert asked.take_refusal(request.id) is None


def test_refusals_that_nobody_reads_are_removed_after_a_day(tmp_path: Path) -> None:
    asked = requests(tmp_path)
    old, young = asked.submit("shop", "x", NOW_MS), asked.submit("shop", "x", NOW_MS + 1000)
    for one in (old, young):
        asked.refuse(one.id, REFUSAL)
    asked.submit("shop", "x", NOW_MS + 24 * 3600 * 1000 + 1)
    assert asked.take_refusal(old.id) is None
    assert asked.take_refusal(young.id) == REFUSAL


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": 3}', b"\xff"])
def test_what_is_no_request_stays_and_hinders_nobody(tmp_path: Path, content: bytes) -> None:
    asked = requests(tmp_path)
    request = asked.submit("shop", "orders", NOW_MS)
    stray = tmp_path / "state" / "requests" / "0-stray.json"
    stray.write_bytes(content)
    assert asked.waiting() == [request]
    assert stray.read_bytes() == content


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    for call in (
        lambda: requests(tmp_path).submit("shop", "orders", NOW_MS),
        lambda: requests(tmp_path).refuse("1-a", REFUSAL),
    ):
        with pytest.raises(ConfigInvalid, match="state-dir"):
            call()
