"""Which entries a stream over all feeds carries: of permitted feeds, whose name begins so, of a share of the keys.

It takes entries away and never adds any. An ``OP_BATCH`` is one atomic unit: it passes whole if its key or the key of one
of its mutations does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from headrace.errors import InvalidRequest
from headrace.runtime.typed_json import decode_json
from headrace.server.guard import StreamRights
from headrace.wire.entry import message_of
from headrace.wire.filters import Shard, parse_shard
from headrace.wire.frame import Frame
from headrace.wire.generated import wal_pb2

PREFIX_BYTES_MAX: Final = 4096
"""Longest ``key_prefix_filter``."""

Runs = Sequence[tuple[int, int]]
"""Entries of a frame that stand side by side: from an index to below another."""


class Selection:
    """What one stream carries. Used from one thread at a time."""

    def __init__(
        self,
        rights: StreamRights | None = None,
        *,
        key_prefix: str = "",
        shard: Shard | None = None,
        controls: bool = False,
    ) -> None:
        """``rights`` None: all feeds. ``key_prefix``: the start of an entry's ``key_prefix + key``. InvalidRequest.

        ``controls``: control entries pass whatever their keys, of feeds whose ``key_prefix`` does.
        """
        self._rights = rights
        self._controls = controls
        self._prefix = key_prefix.encode()
        self._shard = shard
        if len(self._prefix) > PREFIX_BYTES_MAX:
            raise InvalidRequest(
                f"key_prefix_filter: {len(self._prefix)} bytes are more than {PREFIX_BYTES_MAX}",
                member="key_prefix_filter",
            )

    @property
    def is_everything(self) -> bool:
        """Whether every entry passes."""
        return self._rights is None and not self._prefix and self._shard is None

    def stored(self) -> str:
        """Return it as it is kept beside a subscriber's progress, for :func:`selection_of`; empty for everything."""
        given = {"key-prefix": self._prefix.decode(), "shard": str(self._shard) if self._shard else ""}
        given["of-tenant"] = "" if self._rights is None else "yes"
        given["controls"] = "yes" if self._controls and self._prefix else ""
        kept = {name: text for name, text in given.items() if text}
        return msgspec.json.encode(kept).decode() if kept else ""

    def runs(self, frame: Frame) -> Runs:
        """Return which entries of ``frame`` pass."""
        header = frame.header
        if self._rights is not None and not self._rights.permits(header.region_id):
            return ()
        rest = self._rest(frame)
        if rest is None:
            return ()
        if not rest and self._shard is None:
            return ((0, header.count),)
        return list(_runs(self._passes(message_of(entry), rest) for entry in frame.entries()))

    def _rest(self, frame: Frame) -> bytes | None:
        """What keys of this frame must begin with; None: none of them passes.

        All entries of a frame have one ``key_prefix``: that of their feed and of the server that took them.
        """
        if not self._prefix:
            return b""
        own = message_of(next(frame.entries())).key_prefix.encode()
        if own.startswith(self._prefix):
            return b""
        return self._prefix[len(own) :] if self._prefix.startswith(own) else None

    def _passes(self, entry: wal_pb2.WalEntry, rest: bytes) -> bool:
        if self._controls and entry.control:
            return True
        keys = _keys(entry)
        if not any(key.startswith(rest) for key in (entry.key, *keys)):
            return False
        return self._shard is None or bool(entry.control) or any(map(self._shard.has, keys))


def selection_of(stored: str) -> Selection:
    """Return what :meth:`Selection.stored` kept, but for rights: those are not kept."""
    given = decode_json(stored, dict[str, str]) if stored else {}
    return Selection(
        key_prefix=given.get("key-prefix", ""),
        shard=parse_shard(given.get("shard")),
        controls="controls" in given,
    )


def _keys(entry: wal_pb2.WalEntry) -> Sequence[bytes]:
    """The keys that an entry is about."""
    if entry.op_type == wal_pb2.OP_BATCH:
        try:
            mutations = wal_pb2.BatchWrite.FromString(entry.value).mutations
        except DecodeError:
            return (entry.key,)
        return [one.key for one in mutations] or (entry.key,)
    return (entry.key,)


def _runs(passing: Iterable[bool]) -> Iterator[tuple[int, int]]:
    begin = None
    stop = 0
    for stop, passes in enumerate(passing):
        if passes and begin is None:
            begin = stop
        elif not passes and begin is not None:
            yield begin, stop
            begin = None
    if begin is not None:
        yield begin, stop + 1
