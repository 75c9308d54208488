"""A snapshot over the wire: made, cut, gone, broken; and our token, which the publisher never sees."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zstandard

from headrace.client.hydration import HydrationClient
from headrace.client.snapshot import SnapshotFetch, SnapshotFound, StillMade
from headrace.client.snapshot_body import LINE_BYTES_MAX, SnapshotBody, SnapshotRow
from headrace.client.snapshot_decoding import DECODED_BYTES_MAX, decoder_of
from headrace.errors import (
    NoSnapshot,
    ServerUnreachable,
    SnapshotBroken,
    SnapshotGone,
    TicketRefused,
)
from tests.scale import sized
from tests.snapshots import Front, SnapshotPublisher, body_of, fronting, publishing

FEED = "vmapi::vm"
ROWS: list[dict[str, Any]] = [
    {"control": "schema", "key": "\0schema/main/vm/1", "changes": {"columns": []}},
    *(
        {"key": f"k{number}", "changes": {"n": number, "x": "y" * 50}, "table": ["main", "vm"]}
        for number in range(2000)
    ),
]


@pytest.fixture
async def publisher() -> AsyncIterator[SnapshotPublisher]:
    async with publishing(SnapshotPublisher(FEED, "inc")) as running:
        running.take("s1", 20, ROWS)
        yield running


@pytest.fixture
async def front(publisher: SnapshotPublisher) -> AsyncIterator[Front]:
    async with fronting(Front("http://127.0.0.1:9", publisher)) as running:
        yield running


@pytest.fixture
async def fetch(front: Front) -> AsyncIterator[SnapshotFetch]:
    async with HydrationClient(front.url, token="secret-token") as client:
        made = SnapshotFetch(client, FEED, "listener-1")
        yield made
        await made.close()


async def rest(fetch: SnapshotFetch) -> list[SnapshotRow]:
    return [row async for rows in fetch.rows() for row in rows]


def keys(rows: list[SnapshotRow]) -> list[str]:
    return [row.key for row in rows]


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
async def test_every_row_comes_once_in_each_encoding(
    publisher: SnapshotPublisher, fetch: SnapshotFetch, encoding: str
) -> None:
    publisher.encodings = (encoding,)
    found = await fetch.open(8, None)
    assert isinstance(found, SnapshotFound)
    assert (found.snapshot_id, found.sequence_id, found.incarnation) == ("s1", 20, "inc")
    assert found.encoding == encoding
    rows = await rest(fetch)
    assert keys(rows) == [row["key"] for row in ROWS]
    assert json.loads(bytes(rows[1].changes)) == ROWS[1]["changes"]
    assert rows[0].is_control
    assert fetch.body.rows == len(ROWS) - 1
    assert fetch.bytes_done == found.bytes_total
    assert "at-least=8" in publisher.requests[0][0]


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
async def test_cut_anywhere_it_goes_on_where_it_was(
    publisher: SnapshotPublisher, fetch: SnapshotFetch, encoding: str
) -> None:
    publisher.encodings = (encoding,)
    size = len(publisher.encoded(encoding)[1])
    publisher.cuts = [0, size // 3, 17, size // 2]
    got: list[SnapshotRow] = []
    await fetch.open(0, None)
    while not fetch.body.ended:
        try:
            async for rows in fetch.rows():
                got += rows
        except ServerUnreachable:
            await fetch.open(0, "s1")
    assert keys(got) == [row["key"] for row in ROWS]
    ranges = [int(headers.get("range", "bytes=0-")[6:-1]) for _, headers in publisher.requests]
    assert len(ranges) == 5
    assert ranges == sorted(ranges)
    assert ranges[-1] > size // 2


async def test_our_token_never_reaches_the_publisher(
    publisher: SnapshotPublisher, front: Front, fetch: SnapshotFetch
) -> None:
    """RFD 5's API answers 307 to another origin; the ticket in the address is all that the publisher gets."""
    publisher.pauses = 1
    await fetch.open(0, None)
    await fetch.open(0, None)
    await rest(fetch)
    assert all(headers["authorization"] == "Bearer secret-token" for _, headers in front.requests)
    assert len(publisher.requests) == 2
    for first, headers in publisher.requests:
        assert "secret-token" not in repr((first, headers))
        assert "authorization" not in headers
        assert "cookie" not in headers
        assert "ticket=T" in first


async def test_publisher_that_redirects_on_is_not_followed(
    publisher: SnapshotPublisher, front: Front, fetch: SnapshotFetch
) -> None:
    publisher.refusals = [(302, "elsewhere")]
    with pytest.raises(SnapshotBroken, match="status 302"):
        await fetch.open(0, None)
    assert len(publisher.requests) == 1


async def test_still_being_made(publisher: SnapshotPublisher, fetch: SnapshotFetch) -> None:
    publisher.pauses = 1
    assert await fetch.open(0, None) == StillMade(0.1, 5)
    assert isinstance(await fetch.open(0, None), SnapshotFound)


@pytest.mark.parametrize(
    ("status", "code", "kind"), [(410, "snapshot-gone", SnapshotGone), (403, "ticket-refused", TicketRefused)]
)
async def test_refusals(
    publisher: SnapshotPublisher, fetch: SnapshotFetch, status: int, code: str, kind: type[Exception]
) -> None:
    publisher.refusals = [(status, code)]
    with pytest.raises(kind):
        await fetch.open(0, None)


async def test_publisher_without_a_snapshot(front: Front, fetch: SnapshotFetch) -> None:
    front.publisher = None
    with pytest.raises(NoSnapshot):
        await fetch.open(0, None)


async def test_another_snapshot_begins_anew(publisher: SnapshotPublisher, fetch: SnapshotFetch) -> None:
    publisher.encodings, publisher.cuts = ("identity",), [100_000]
    await fetch.open(0, None)
    with pytest.raises(ServerUnreachable):
        await rest(fetch)
    publisher.take("s2", 30, ROWS[:5])
    with pytest.raises(SnapshotGone):
        await fetch.open(0, "s1")
    await fetch.open(0, None)
    assert keys(await rest(fetch)) == [row["key"] for row in ROWS[:5]]


BODY = body_of(ROWS[:3], 20, snapshot_id="s1", feed=FEED, incarnation="inc")


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace(b'"n": 1', b'"n": 2'),
        BODY[: BODY.rindex(b'{"end"')],
        BODY[:-1],
        BODY + b'{"key":"more","changes":{}}\n',
        BODY.replace(b'"rows":2', b'"rows":3'),
        BODY.replace(b'"headrace-snapshot": 1', b'"headrace-snapshot": 2'),
        BODY.replace(b'{"key": "k0"', b'{"kee": "k0"'),
        BODY.replace(b'"s1"', b'"s9"'),
        b"",
        b"\xff\n",
    ],
    ids=[
        "bit",
        "no-end",
        "torn-end",
        "after-end",
        "count",
        "newer",
        "member",
        "other-id",
        "empty",
        "no-json",
    ],
)
async def test_body_that_is_not_whole_is_no_snapshot(
    publisher: SnapshotPublisher, fetch: SnapshotFetch, body: bytes
) -> None:
    publisher.body = body
    await fetch.open(0, None)
    with pytest.raises(SnapshotBroken):
        await rest(fetch)


def test_bytes_in_any_pieces_give_the_same_rows() -> None:
    for size in (1, 2, 7, 100, len(BODY)):
        body = SnapshotBody()
        rows = [row for at in range(0, len(BODY), size) for row in body.take(BODY[at : at + size])]
        body.finish()
        assert keys(rows) == [row["key"] for row in ROWS[:3]]


def encode(encoding: str, raw: bytes) -> bytes:
    """``raw`` in this encoding."""
    if encoding == "zstd":
        return zstandard.ZstdCompressor().compress(raw)
    gzip = zlib.compressobj(wbits=31)
    return gzip.compress(raw) + gzip.flush()


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_rows_that_compress_well_take_bounded_memory(encoding: str) -> None:
    """A thousandfold: a piece of 16 KiB holds more rows than a listener has memory for."""
    rows = [{"key": "k", "changes": {"state": "running", "x": "y" * 300}}] * sized(100_000, soak=200_000)
    encoded = encode(encoding, body_of(rows, 20, snapshot_id="s1", feed=FEED, incarnation="inc"))
    decode, body = decoder_of(encoding), SnapshotBody()
    tracemalloc.start()
    try:
        for decoded in decode(encoded):
            assert len(decoded) <= DECODED_BYTES_MAX
            body.take(decoded)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    body.finish()
    assert body.rows == len(rows)
    assert peak < 16 << 20


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_encoded_bytes_in_any_pieces_give_the_same_body(encoding: str) -> None:
    encoded = encode(encoding, BODY)
    for size in (1, 7, 63, 64, 65, len(encoded)):
        decode = decoder_of(encoding)
        pieces = [encoded[at : at + size] for at in range(0, len(encoded), size)]
        assert b"".join(part for piece in pieces for part in decode(piece)) == BODY


@pytest.mark.parametrize("encoding", ["zstd", "gzip"])
def test_what_is_not_of_its_encoding_is_broken(encoding: str) -> None:
    with pytest.raises(SnapshotBroken, match="can't be decompressed"):
        list(decoder_of(encoding)(b"no such thing" * 20))


def test_zstd_that_wants_a_large_window_is_broken() -> None:
    terms = zstandard.ZstdCompressionParameters(window_log=27)
    large = zstandard.ZstdCompressor(compression_params=terms).compressobj()
    with pytest.raises(SnapshotBroken, match="can't be decompressed"):
        list(decoder_of("zstd")(large.compress(b"x" * 100) + large.flush()))


def test_line_without_an_end_is_broken_before_it_fills_the_memory() -> None:
    body = SnapshotBody()
    for _ in range(LINE_BYTES_MAX // DECODED_BYTES_MAX):
        body.take(b"x" * DECODED_BYTES_MAX)
    with pytest.raises(SnapshotBroken, match="a line of the snapshot is longer"):
        body.take(b"x")
    with pytest.raises(SnapshotBroken, match="a line of the snapshot is longer"):
        SnapshotBody().take(BODY.splitlines(keepends=True)[0] + b"x" * (LINE_BYTES_MAX + 1) + b"\n")


def test_line_that_nests_too_deeply_is_broken() -> None:
    deep = b'{"key":"k","changes":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n"
    body = SnapshotBody()
    with pytest.raises(SnapshotBroken):
        body.take(BODY.splitlines(keepends=True)[0] + deep)


async def test_rows_left_within_a_piece_begin_anew(
    publisher: SnapshotPublisher, fetch: SnapshotFetch
) -> None:
    """Whoever stops taking within a piece has a decoder that is further than what it counted."""
    publisher.take("s1", 20, ROWS * 20)
    publisher.encodings = ("zstd",)
    await fetch.open(0, None)
    batches = fetch.rows()
    assert await anext(batches)
    await batches.aclose()
    await fetch.open(0, "s1")
    assert not fetch.begun
    assert keys(await rest(fetch)) == [row["key"] for row in ROWS * 20]
