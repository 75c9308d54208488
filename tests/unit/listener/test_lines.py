"""Output lines: one entry is one line, and what a killed writer left half-written is cut before the next one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from headrace.errors import Stopped
from headrace.listener import Change
from headrace.listener.lines import LineOutput
from headrace.wire.documents import EntryOut
from tests.waiting import async_wait_until

BEGIN = b'{"sequence-id":'
WHOLE = b'{"sequence-id":1,"lsn":"1.1.1"}\n'


def change(changes: bytes) -> Change:
    return Change("i", EntryOut(sequence_id=1, lsn="1.1.1", committed_at="t", changes=Raw(changes)))


def test_changes_pass_through_byte_for_byte() -> None:
    odd = b'{"n": 1.00000000000000000001,  "s":"\\u00e9\\n"}'
    line = change(odd).line()
    assert line.startswith(BEGIN)
    assert odd in line
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
def test_changes_broken_over_lines_become_one_line(newline: str) -> None:
    line = change(newline.join(["{", ' "n": 1.00000000000000000001,', ' "s": "a b"', "}"]).encode()).line()
    assert b'"changes":{"n":1.00000000000000000001,"s":"a b"}' in line
    assert len(line.splitlines()) == 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.ndjson"


def appended(path: Path, before: bytes) -> tuple[int, bytes]:
    path.write_bytes(before)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        output = LineOutput(fd)
        cut = output.mend(BEGIN)
        asyncio.run(output.write(WHOLE))
    finally:
        os.close(fd)
    return cut, path.read_bytes()


@pytest.mark.parametrize("torn", [BEGIN + b'2,"ls', b"{", BEGIN[:5]], ids=["middle", "one byte", "name"])
def test_torn_line_is_cut(path: Path, torn: bytes) -> None:
    assert appended(path, WHOLE + torn) == (len(torn), WHOLE + WHOLE)
    assert appended(path, torn) == (len(torn), WHOLE)


@pytest.mark.parametrize("kept", [b"a header", WHOLE[:-1]], ids=["foreign", "whole"])
def test_last_line_that_is_not_torn_is_kept(path: Path, kept: bytes) -> None:
    assert appended(path, WHOLE + kept) == (0, WHOLE + kept + b"\n" + WHOLE)


@pytest.mark.parametrize("before", [b"", WHOLE, b"text\n"], ids=["empty", "ours", "foreign"])
def test_file_that_ends_with_a_newline_is_left_alone(path: Path, before: bytes) -> None:
    assert appended(path, before) == (0, before + WHOLE)


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


async def test_reader_that_has_gone(pipe: list[int]) -> None:
    output = LineOutput(pipe[1])
    os.close(pipe[0])
    pipe[0] = -1
    assert output.mend(BEGIN) == 0
    with pytest.raises(BrokenPipeError):
        await output.write(WHOLE)


async def test_stalled_reader_does_not_hold_who_waits(pipe: list[int]) -> None:
    data = WHOLE * 100_000
    writing = asyncio.create_task(LineOutput(pipe[1]).write(data))
    assert await asyncio.to_thread(os.read, pipe[0], 1) == data[:1]
    assert not writing.done()
    writing.cancel()
    await asyncio.wait({writing})
    assert writing.cancelled()
    left = len(data) - 1
    while left:
        left -= len(await asyncio.to_thread(os.read, pipe[0], 1 << 20))


async def test_pipe_that_is_non_blocking(pipe: list[int]) -> None:
    os.set_blocking(pipe[1], False)
    data = WHOLE * 10_000
    writing = asyncio.create_task(LineOutput(pipe[1]).write(data))
    got = bytearray()
    while len(got) < len(data):
        got += await asyncio.to_thread(os.read, pipe[0], 1 << 20)
    await async_wait_until(writing.done)
    assert bytes(got) == data


async def test_output_that_takes_nothing() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(Stopped, match="No space left"):
            await LineOutput(fd).write(WHOLE)
    finally:
        os.close(fd)
