"""Polls that one append wakes share one read and one answer, each its own filter and place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import JournalCorrupt
from headrace.log.log import Log
from headrace.server.reading import Known
from headrace.server.rendering import Portion, Rendered
from headrace.wire.filters import EntryFilter
from headrace.wire.frame import Frame
from tests.faces import FEED, Served, served
from tests.waiting import async_wait_until

MINUTE_MS = 60_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that were read from the log, each time it happened."""
    found: list[tuple[int, int]] = []
    read = Log.read

    async def counted(self: Log, feed: str, first: int, last: int, **bounds: Any) -> list[Frame]:
        found.append((first, last))
        return await read(self, feed, first, last, **bounds)

    monkeypatch.setattr(Log, "read", counted)
    return found


def _poll(server: Served, after: int, portion: Portion | None = None) -> asyncio.Task[Rendered]:
    return asyncio.create_task(
        server.service.poll(FEED, "l", after, timeout_ms=MINUTE_MS, known=Known(), portion=portion)
    )


async def _waiting(server: Served, count: int) -> None:
    waiting = server.service.log._waiting
    await async_wait_until(lambda: len(waiting.get(FEED, ())) == count, what="all polls to wait")


async def test_equal_polls_are_one_read_and_the_same_bytes(
    tmp_path: Path, reads: list[tuple[int, int]]
) -> None:
    async with served(tmp_path) as server:
        polls = [_poll(server, 0) for _ in range(500)]
        await _waiting(server, 500)
        await server.post(b'{"n":1}')
        answers = await asyncio.gather(*polls)
        assert all(answer is answers[0] for answer in answers)
        assert reads == [(1, 1)]
        late = await _poll(server, 0)
        assert late is answers[0], "who asks a moment later too"
        assert reads == [(1, 1)]


async def test_other_places_bounds_and_filters_get_their_own(
    tmp_path: Path, reads: list[tuple[int, int]]
) -> None:
    async with served(tmp_path) as server:
        await server.post(b'{"uuid":"a"}', b'{"uuid":"b"}')
        given = [
            (0, Portion()),
            (1, Portion()),
            (0, Portion(limit=1)),
            (0, Portion(bytes_max=1)),
            (0, Portion(wanted=EntryFilter(key=b"b"))),
        ]
        answers = await asyncio.gather(*(_poll(server, after, portion) for after, portion in given))
        assert [(answer.first, answer.entries, answer.last_sequence_id) for answer in answers] == [
            (1, 2, 2), (2, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2),
        ]  # fmt: skip
        assert len(reads) == len(given)


async def test_a_later_append_is_never_answered_from_an_older_look(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for number in range(1, 30):
            await server.post(b"{}")
            answer = await _poll(server, 0)
            assert (answer.entries, answer.last_sequence_id) == (number, number)


async def test_one_who_leaves_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        polls = [_poll(server, 0) for _ in range(20)]
        await _waiting(server, 20)
        for poll in polls[::2]:
            poll.cancel()
        await server.post(b"{}")
        answers = await asyncio.gather(*polls, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in answers[::2])
        assert all(isinstance(one, Rendered) and one.entries == 1 for one in answers[1::2])


async def test_an_error_is_told_to_all_and_the_next_one_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as server:
        await server.post(b"{}")
        read = Log.read

        async def broken(*_: Any, **__: Any) -> list[Frame]:
            raise JournalCorrupt("damaged")

        monkeypatch.setattr(Log, "read", broken)
        answers = await asyncio.gather(*(_poll(server, 0) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, JournalCorrupt) for one in answers)
        monkeypatch.setattr(Log, "read", read)
        assert (await _poll(server, 0)).entries == 1


async def test_a_stopping_server_answers_every_poll_with_its_place(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        await server.post(b"{}")
        polls = [_poll(server, 1) for _ in range(50)]
        await _waiting(server, 50)
        server.service.stop_waiting()
        answers = await asyncio.gather(*polls)
        assert {(answer.entries, answer.last_sequence_id) for answer in answers} == {(0, 1)}
