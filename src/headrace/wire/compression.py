"""How the entries of a batch are compressed (RFC-010 §3): only for who asked, by size, and never made larger. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import cramjam
import zstandard

from headrace.errors import JournalCorrupt
from headrace.wire.generated import wal_pb2

SNAPPY_ABOVE: Final = 4 << 10
ZSTD_ABOVE: Final = 64 << 10
"""Entries of more bytes than these are compressed so; above both, by the one that compresses better."""
ZSTD_LEVEL: Final = 1
PLAIN_BYTES_MAX: Final = 64 << 20
"""A compressed batch that says it is larger is not opened."""

NONE: Final = wal_pb2.NONE
SNAPPY: Final = wal_pb2.SNAPPY
ZSTD: Final = wal_pb2.ZSTD


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionTerms:
    """Above how many bytes of entries which compression begins."""

    snappy_above: int = SNAPPY_ABOVE
    zstd_above: int = ZSTD_ABOVE


def choose(accepted: Collection[int], size: int, terms: CompressionTerms) -> int:
    """Return how ``size`` bytes of entries are to be compressed for who can read ``accepted``."""
    if ZSTD in accepted and size > terms.zstd_above:
        return ZSTD
    if SNAPPY in accepted and size > terms.snappy_above:
        return SNAPPY
    return NONE


def compress(kind: int, data: bytes) -> bytes:
    """Return ``data`` compressed: raw Snappy, or one Zstandard frame that names its content's size."""
    if kind == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)


def decompress(kind: int, data: bytes) -> bytes:
    """Return what was compressed; JournalCorrupt for what is no such data, or says that it is more than 64 MiB."""
    try:
        if kind == SNAPPY:
            size = int(cramjam.snappy.decompress_raw_len(data))
            _check_size(size)
            return bytes(cramjam.snappy.decompress_raw(data))
        if kind == ZSTD:
            size = zstandard.frame_content_size(data)
            _check_size(size)
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except (cramjam.DecompressionError, zstandard.ZstdError, ValueError) as error:
        raise JournalCorrupt(f"a batch's compressed entries can't be read: {error}") from None
    raise JournalCorrupt(f"a batch is compressed in a way that nobody knows: {kind}")


def _check_size(size: int) -> None:
    if not 0 <= size <= PLAIN_BYTES_MAX:
        raise JournalCorrupt(f"a batch's compressed entries say that they are {size} bytes")
