"""A snapshot's encodings, undone piece by piece: what comes out at once has a bound, however well rows compress. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import zstandard

from headrace.errors import SnapshotBroken

DECODED_BYTES_MAX: Final = 256 << 10
"""Given out at a time: some 10,000 of the shortest rows."""
ZSTD_BYTES_FED: Final = 64
"""Zstandard gives out all that it can make of what it is fed. Four bytes can become a block of 128 KiB (RFC 8878 §3.1.1.2),
so these become 2 MiB at most."""
ZSTD_WINDOW_MAX: Final = 8 << 20
"""What zstd keeps to look back: more is not to be sent over HTTP (RFC 9659 §3)."""


class Decoder(Protocol):
    """Takes the next encoded bytes, and gives out what they complete, at most DECODED_BYTES_MAX bytes at a time.

    SnapshotBroken while it is read, if the bytes are not of this encoding.
    """

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """Give out what ``data`` completes."""


def decoder_of(encoding: str) -> Decoder:
    """Return a decoder for one body of this ``Content-Encoding``; SnapshotBroken for one that we don't know."""
    if encoding == "identity":
        return _slices
    if encoding == "gzip":
        return _gunzip()
    if encoding == "zstd":
        return _unzstd()
    raise SnapshotBroken(f"the snapshot has the encoding {encoding[:40]!r}, which was not asked for")


def _slices(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), DECODED_BYTES_MAX):
        yield data[at : at + DECODED_BYTES_MAX]


def _gunzip() -> Decoder:
    inflate = zlib.decompressobj(wbits=31)

    def decode(data: bytes) -> Iterator[bytes]:
        while data:
            try:
                decoded = inflate.decompress(data, DECODED_BYTES_MAX)
            except zlib.error as error:
                raise _broken(error) from None
            data = inflate.unconsumed_tail
            yield decoded

    return decode


def _unzstd() -> Decoder:
    expand = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX).decompressobj()

    def decode(data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), ZSTD_BYTES_FED):
            try:
                decoded = expand.decompress(data[at : at + ZSTD_BYTES_FED])
            except zstandard.ZstdError as error:
                raise _broken(error) from None
            yield from _slices(decoded)

    return decode


def _broken(error: Exception) -> SnapshotBroken:
    return SnapshotBroken(f"the snapshot can't be decompressed: {error}")
