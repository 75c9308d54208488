"""The source position: what is kept with each append, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headrace.capture.position import (
    POSITION_BYTES_MAX,
    CopyProgress,
    SourcePosition,
    decode,
    encode,
)
from headrace.errors import FeedUnfit, FormatTooNew, TooLarge
from headrace.simple.message import Timestamp

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "capture-position.md"
POSITION = SourcePosition(
    gtid="0-1-4711,1-2-5",
    file="binlog.000017",
    offset=52031,
    server_id=1,
    commit_ts=461701121277952001,
    table_id=12,
    parts=61,
    entries=5001,
    under_way="0-1-4712",
    time_s=1761250000,
    copies=(CopyProgress(("shop", "orders"), 461701121277947904, ("41000",), 40213, "asked", "7c1e"),),
    whole=False,
    waiting=(("shop", "users"),),
    left_out=((3, 4),),
    stopped={"shop.places": "the column area has the type geometry, which no message has a form for"},
)
BETWEEN = msgspec.structs.replace(
    POSITION, parts=0, entries=0, under_way="", copies=(), whole=True, waiting=(), left_out=(), stopped={}
)


def example() -> bytes:
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].replace("\n", "").encode()


def test_the_pages_example_is_written_and_read() -> None:
    assert encode(POSITION) == example()
    assert decode(example()) == POSITION


def test_the_page_names_every_member() -> None:
    named = re.findall(
        r"`([a-z-]+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    )
    members = [
        field.encode_name for kind in (SourcePosition, CopyProgress) for field in msgspec.structs.fields(kind)
    ]
    assert sorted(named) == sorted([*members, "written-as", "readable-from"])


def test_between_transactions_it_is_small() -> None:
    assert decode(encode(BETWEEN)) == BETWEEN
    assert len(encode(BETWEEN)) < 200


@pytest.mark.parametrize(
    "position",
    [
        msgspec.structs.replace(BETWEEN, gtid="", offset=4),
        msgspec.structs.replace(BETWEEN, commit_ts=(1 << 64) - 1),
        msgspec.structs.replace(POSITION, parts=0),
        msgspec.structs.replace(POSITION, entries=0),
        msgspec.structs.replace(
            BETWEEN,
            copies=(
                CopyProgress(("a", "é")),
                CopyProgress(("a", "b"), 1, (None, Timestamp("UTC", "x"), "y")),
            ),
        ),
    ],
)
def test_round_trip(position: SourcePosition) -> None:
    assert decode(encode(position)) == position


def test_a_newer_member_is_passed_over() -> None:
    assert decode(encode(BETWEEN)[:-1] + b',"later":[1]}') == BETWEEN


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(FormatTooNew, match="source position"):
        decode(example().replace(b'"readable-from":1', b'"readable-from":2'))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"p7",
        b"\xff\xfe",
        b"[" * 2000,
        b"{}",
        b'{"readable-from":1}',
        b'{"readable-from":-1}',
        example().replace(b'"gtid":"0-1-4711,1-2-5"', b'"gtid":"0-1"'),
        example().replace(b'"under-way":"0-1-4712"', b'"under-way":"later"'),
        example().replace(b'"under-way":"0-1-4712",', b""),
        example().replace(b'"parts":61,"entries":5001,', b""),
        example().replace(b'"offset":52031', b'"offset":-1'),
        example().replace(b'"reason":"asked"', b'"reason":"why"'),
        example().replace(b"[[3,4]]", b'[["3","4"]]'),
        example().replace(b'"last":["41000"]', b'"last":[41000]'),
    ],
)
def test_what_is_no_position_is_refused(data: bytes) -> None:
    with pytest.raises(
        FeedUnfit, match=r"^the feed's source position is none of capture's: .+ It begins with b"
    ):
        decode(data)


def test_reasons_are_cut_where_there_are_many() -> None:
    stopped = {f"shop.table_{number:04}": "why " * 40 for number in range(150)}
    data = encode(msgspec.structs.replace(BETWEEN, stopped=stopped))
    assert len(data) <= POSITION_BYTES_MAX
    assert decode(data).stopped == dict.fromkeys(stopped, ("why " * 40)[:60])
    stopped = {f"shop.table_{number:04}": "why " * 40 for number in range(500)}
    assert decode(encode(msgspec.structs.replace(BETWEEN, stopped=stopped))).stopped == dict.fromkeys(
        stopped, ""
    )


def test_too_many_tables_are_refused() -> None:
    stopped = {f"shop.table_{number:04}": "why" for number in range(1000)}
    with pytest.raises(TooLarge, match="1000 tables"):
        encode(msgspec.structs.replace(BETWEEN, stopped=stopped))
