"""Compressed answers of a real server: only where asked for, only where large, and the same to the client."""

from __future__ import annotations

import gzip

import httpx
import pytest
import zstandard

from headrace.client.http import FeedClient
from headrace.wire.documents import FRAMES_TYPE
from tests.servers import Feed, changes

TEXT = {"text": "water " * 1_000}


def _raw(feed: Feed, path: str, accept_encoding: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """The answer, and its body as it went over the network."""
    given = {"Accept-Encoding": accept_encoding, **headers}
    with feed.server.http.stream("GET", path, headers=given) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("kind", ["entries?beg-sequence-id=1", "poll?listener-id=listener-1&timeout-ms=0"])
def test_large_answers_are_compressed_as_the_client_asks(feed: Feed, kind: str) -> None:
    feed.post(*({"changes": changes(number) | TEXT} for number in range(20)))
    path = f"{feed.path}/{kind}"
    plain, wanted = _raw(feed, path, "identity")
    assert "content-encoding" not in plain.headers
    for coding, decode in (("gzip", gzip.decompress), ("zstd", zstandard.ZstdDecompressor().decompress)):
        answer, packed = _raw(feed, path, coding)
        assert answer.headers["content-encoding"] == coding
        assert int(answer.headers["content-length"]) == len(packed) < len(wanted) / 5
        assert answer.headers["content-type"] == plain.headers["content-type"]
        assert decode(packed) == wanted
        assert answer.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


def test_small_answers_and_refusals_stay_as_they_are(feed: Feed) -> None:
    feed.post({"changes": {}})
    for path in (f"{feed.path}/entries?beg-sequence-id=1", f"{feed.path}/entries?beg-sequence-id=9"):
        answer, _ = _raw(feed, path, "gzip, zstd")
        assert "content-encoding" not in answer.headers


def test_stored_frames_and_other_documents_are_compressed_too(feed: Feed) -> None:
    feed.post(*({"changes": changes(number) | TEXT} for number in range(20)))
    path = f"{feed.path}/entries?beg-sequence-id=1"
    _, wanted = _raw(feed, path, "identity", Accept=FRAMES_TYPE)
    answer, packed = _raw(feed, path, "gzip", Accept=FRAMES_TYPE)
    assert gzip.decompress(packed) == wanted
    assert answer.headers["content-type"] == FRAMES_TYPE
    described, packed = _raw(feed, "/openapi.json", "zstd")
    assert described.headers["content-encoding"] == "zstd"
    assert zstandard.ZstdDecompressor().decompress(packed).startswith(b'{"openapi"')


async def test_our_client_asks_for_compression(feed: Feed) -> None:
    feed.post(*({"changes": changes(number) | TEXT} for number in range(20)))
    async with FeedClient(feed.server.url) as client:
        found = await client.poll(feed.name, "listener-1", 0, timeout_ms=0)
        asked = client._http.headers["accept-encoding"]
    assert [entry.sequence_id for entry in found.changes_list] == list(range(1, 21))
    assert found.last_sequence_id == 20
    assert "gzip" in asked
    assert "zstd" in asked
