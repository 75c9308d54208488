"""A stream over all feeds that was told where to go on behind damage does go on there, wherever the damage is."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt
from headrace.log.contract import Store
from headrace.server.streams.walking import find_start, read_on
from headrace.wire.frame import HEADER_SIZE, FrameHeader
from tests.fault.journals import copied, flip, headers, opened

FRAMES = 12


def streamed(store: Store) -> list[int]:
    """The positions of all frames that a stream gets that does as the errors say."""
    start, found = find_start(store, None), list[int]()
    while True:
        try:
            frames = read_on(store, start.position, start.walked)
        except JournalCorrupt as damage:
            resume = damage.members.get("resume-lsn")
            if resume is None:
                return found
            behind = find_start(store, Lsn.parse(resume))
            assert behind.position > start.position, "it leads back to the damage"
            start = behind
            continue
        if not frames:
            return found
        found += [frame.header.position for frame in frames if frame.header.count]
        start = start._replace(position=frames[-1].header.end)


def hide(folder: Path, frame: FrameHeader) -> None:
    flip(folder, frame.position + 10)
    flip(folder, frame.end - HEADER_SIZE + 10)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2000], ids=["one segment", "small segments"])
@pytest.mark.parametrize("run", [1, 2])
def test_stream_goes_on_behind_frames_of_which_nothing_can_be_read(
    tmp_path: Path, segment_bytes: int, run: int
) -> None:
    with opened(tmp_path / "made", segment_bytes=segment_bytes) as bench:
        for feed in ("a", "b"):
            bench.register(feed)
        for number in range(FRAMES):
            bench.append("ab"[number % 3 == 0], f"value {number}")
        frames = [header for header in headers(bench) if header.count]
    for first in range(FRAMES - run + 1):
        gone = frames[first : first + run]
        folder = copied(tmp_path / "made", tmp_path / "damaged")
        with opened(folder, segment_bytes=segment_bytes) as bench:
            for frame in gone:
                hide(folder, frame)
            wanted = [frame.position for frame in frames if frame not in gone]
            assert streamed(bench.store) == wanted
            for frame in frames:
                start = find_start(bench.store, frame.lsn(0)).position
                assert start <= frame.position, "nothing is passed over"
                if frame.position > gone[-1].position:
                    assert start > gone[-1].position, (
                        "who asks for what stands behind does not meet the damage"
                    )
