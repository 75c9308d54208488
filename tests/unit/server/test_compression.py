"""Which coding is chosen by Accept-Encoding, and that what comes out is what went in."""

from __future__ import annotations

import gzip

import pytest
import zstandard

from headrace.server.http.compression import CODINGS, choose_coding, compress


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("GZip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "gzip"),
        ("identity", None),
        ("identity;q=1, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("gzip;q=much", None),
        ("br", None),
        (",,;q", None),
    ],
)
def test_the_coding_that_the_client_prefers(accepted: str, coding: str | None) -> None:
    assert choose_coding(accepted) == coding


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_is_smaller_the_same_each_time_and_decodes(coding: str) -> None:
    content = b'{"changes-list":[' + b'{"n":1},' * 10_000
    packed = compress(content, coding)
    decoded = gzip.decompress(packed) if coding == "gzip" else zstandard.ZstdDecompressor().decompress(packed)
    assert len(packed) < len(content) / 10
    assert packed == compress(content, coding)
    assert decoded == content
