"""The byte tables in docs/formats add up, and their examples are what the code writes and reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.entries.entry import Change, Op
from headrace.log.tail import FeedTail
from headrace.wire import versions
from headrace.wire.entry import decode_entry, digest, encode_half, stamp
from headrace.wire.frame import (
    HEADER_SIZE,
    Area,
    Frame,
    FrameHeader,
    FrameKind,
    decode_area,
    encode_area,
    encode_frame,
)
from headrace.wire.mark import SLOT_SIZE, Mark, decode_marks
from headrace.wire.segment import (
    INDEX_FOOT_SIZE,
    INDEX_HEAD_SIZE,
    ROW,
    START_SIZE,
    FramePlace,
    SegmentStart,
    decode_footer,
    decode_start,
    encode_index,
    index_fits,
)
from headrace.wire.versions import FormatVersion

DOCS = Path(__file__).parents[3] / "docs"
TS = 1_760_000_000_000 << 18
CHANGES = [Change(b'{"n":1}', key=b"k"), Change(b"{}", op=Op.DELETE)]


def frame() -> bytes:
    halves = [encode_half(change) for change in CHANGES]
    body, lengths = stamp(
        halves, global_ts=TS, region_id=7, first_sequence_id=63, tenant="acme", key_prefix="eu:acme:vm:"
    )
    header = FrameHeader(FrameKind.ENTRIES, 0x100, 63, TS, 3, digest(halves), 7, 2, 0, 0, 0)
    return encode_frame(
        header, encode_area({Area.PRODUCER: b"agent-1", Area.SOURCE_POSITION: b"p7"}), body, lengths
    )


def segment() -> bytes:
    return SegmentStart(0x100, b'{"global-ts":0}').encode()


def index() -> bytes:
    return encode_index([FramePlace(7, 2, 63, 0x100, 416), FramePlace(7, 1, 65, 0x400, 300)], 0x100, 0x52C)


def mark() -> bytes:
    return Mark(5, 0x2FE, TS).encode()


EXAMPLES: dict[str, Callable[[], bytes]] = {"frame": frame, "segment": segment, "index": index, "mark": mark}


def text_of(page: str) -> str:
    return (DOCS / "formats" / f"{page}.md").read_text(encoding="utf-8")


def example(page: str) -> bytes:
    """The bytes of the page's hex dump, whose offsets must be right."""
    block = re.search(r"```hex\n(.*?)```", text_of(page), re.DOTALL)
    assert block is not None
    data = b""
    for line in block[1].splitlines():
        offset, _, row = line.partition("  ")
        assert int(offset, 16) == len(data)
        data += bytes.fromhex(row)
    return data


@pytest.mark.parametrize("page", EXAMPLES)
def test_example_is_what_the_code_writes(page: str) -> None:
    assert example(page) == EXAMPLES[page]()


@pytest.mark.parametrize("page", EXAMPLES)
def test_explained_bytes_stand_where_the_page_says(page: str) -> None:
    data = example(page)
    rows = re.findall(r"^\| `([0-9a-f]{4})` \| `([0-9a-f ]+)`", text_of(page), re.MULTILINE)
    assert len(rows) >= 5
    for offset, shown in rows:
        wanted = bytes.fromhex(shown)
        assert data[int(offset, 16) :][: len(wanted)] == wanted, offset


@pytest.mark.parametrize(
    ("page", "sizes"),
    [
        ("frame", [HEADER_SIZE]),
        ("segment", [START_SIZE]),
        ("index", [INDEX_HEAD_SIZE, ROW.size, INDEX_FOOT_SIZE]),
        ("mark", [SLOT_SIZE]),
    ],
)
def test_byte_tables_have_no_holes(page: str, sizes: list[int]) -> None:
    found: list[int] = []
    for table in re.split(r"^\| offset.*\n\|[-|]+\n", text_of(page), flags=re.MULTILINE)[1:]:
        rows = [(int(a), int(b)) for a, b in re.findall(r"^\| (\d+) \| (\d+) \|", table, re.MULTILINE)]
        assert all(offset + size == later for (offset, size), (later, _) in pairwise(rows))
        if rows:
            found.append(sum(rows[-1]))
    assert found == sizes


def test_examples_are_read() -> None:
    read = Frame(example("frame"))
    assert [decode_entry(stored, 63 + at).change.value for at, stored in enumerate(read.entries())] == [
        b'{"n":1}',
        b"{}",
    ]
    assert list(read.lengths) == [98, 97]
    assert decode_area(read.area) == {Area.PRODUCER: b"agent-1", Area.SOURCE_POSITION: b"p7"}
    assert decode_start(example("segment"), "x")[:2] == (0x100, b'{"global-ts":0}')
    footer = decode_footer(example("index"), "x")
    assert footer is not None
    assert index_fits(example("index"), footer)
    assert decode_marks(bytes(SLOT_SIZE) + example("mark"), "x") == (5, 0x2FE, TS)


def test_area_tags_are_all_explained() -> None:
    (table,) = re.findall(r"^\| tag \| value \|\n\|[-|]+\n((?:\|.*\n)+)", text_of("frame"), re.MULTILINE)
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == [str(tag.value) for tag in Area]


def test_pages_name_the_versions_of_the_code() -> None:
    for page, kind in (
        ("frame", versions.FRAME),
        ("segment", versions.SEGMENT),
        ("index", versions.INDEX),
        ("mark", versions.MARK),
        ("metadata", versions.METADATA),
    ):
        text = " ".join(text_of(page).split())
        assert f"Format version {kind.written_as}, readable from {kind.readable_from}" in text, page


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", text_of("README")))
    assert listed == {path.name for path in (DOCS / "formats").glob("*.md")} - {"README.md"}


def test_compatibility_page_has_every_format() -> None:
    text = (DOCS / "reference" / "compatibility.md").read_text(encoding="utf-8")
    columns = re.search(r"^\| release \| (.*) \|$", text, re.MULTILINE)
    newest = re.findall(r"^\| \d+\.\d+ \| ([\d |]+) \|$", text, re.MULTILINE)[-1]
    assert columns is not None
    now = {
        name.replace("_", " ").lower(): kind.written_as
        for name, kind in vars(versions).items()
        if isinstance(kind, FormatVersion)
    }
    told = dict(
        zip([name.lower() for name in columns[1].split(" | ")], map(int, newest.split(" | ")), strict=True)
    )
    assert told == now


def test_state_members_are_all_explained() -> None:
    for member in FeedTail.__struct_encode_fields__:
        assert member == "name" or f"`{member}`" in text_of("segment"), member
