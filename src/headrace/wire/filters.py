"""Which entries a reader asks for: by members changed, by key, by its share of the keys. Pure; server and clients use it.

A filter takes entries away and never adds any. Control entries always pass: a table's schema or a TRUNCATE concerns every
reader. So does an ``OP_BATCH`` if one of its mutations passes: it is one atomic unit and is never split.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

import google_crc32c
import msgspec
from google.protobuf.message import DecodeError

from headrace.errors import InvalidRequest
from headrace.runtime.typed_json import decode_json
from headrace.wire.generated import wal_pb2

SHARDS_MAX: Final = 1024
"""Most parts that the keys of a feed can be shared out in."""
MEMBERS_MAX: Final = 100
"""Most members that a reader can ask for."""

_SHARD = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")


class Shard(NamedTuple):
    """Part ``number`` (from 1) of ``parts``: the keys whose CRC-32C leaves ``number - 1`` when divided by ``count``."""

    number: int
    parts: int

    def has(self, key: bytes) -> bool:
        """Tell whether the key belongs to this part."""
        return int(google_crc32c.value(key)) % self.parts == self.number - 1

    def __str__(self) -> str:
        """Return it as :func:`parse_shard` reads it."""
        return f"{self.number}/{self.parts}"


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """What a reader asked for; each condition that is given must hold. Nothing given: :data:`EVERYTHING`.

    ``changed``: the entry changed one of these members, as its ``changed`` says, or else the members of its value; deletes
    always do. ``key``: the entry's key. ``shard``: the part of the keys.
    """

    changed: frozenset[str] = frozenset()
    key: bytes | None = None
    shard: Shard | None = None

    def passes(self, entry: wal_pb2.WalEntry) -> bool:
        """Tell whether the reader gets this entry."""
        if entry.control:
            return True
        if entry.op_type == wal_pb2.OP_BATCH:
            try:
                mutations = wal_pb2.BatchWrite.FromString(entry.value).mutations
            except DecodeError:  # nobody can say what it did not change
                return True
            return any(self._passes(one.key, one.op, one.value, ()) for one in mutations)
        return self._passes(entry.key, entry.op_type, entry.value, entry.changed)

    def has(self, key: bytes) -> bool:
        """Tell whether this key is asked for. Of a snapshot's row no more can be said: it names nothing that it changed."""
        return (self.key is None or key == self.key) and (self.shard is None or self.shard.has(key))

    def parameters(self) -> dict[str, str]:
        """Return the parameters of a request that asks for this; InvalidRequest if none can."""
        given = {
            "changed": ",".join(sorted(self.changed)) if self.changed else None,
            "key": self.key.decode(errors="replace") if self.key is not None else None,
            "shard": str(self.shard) if self.shard is not None else None,
        }
        if entry_filter(**given) != self:
            raise InvalidRequest(
                f"{self}: no request can ask for it", hint="Members have no commas; a key is UTF-8."
            )
        return {name: text for name, text in given.items() if text is not None}

    def stored(self) -> str | None:
        """Return it as it is kept beside a bookmark: JSON of its parameters, equal for equal filters; None: no condition."""
        given = self.parameters()
        return msgspec.json.encode(given).decode() if given else None

    def _passes(self, key: bytes, op: int, value: bytes, changed: Collection[str]) -> bool:
        if not self.has(key):
            return False
        if not self.changed or op == wal_pb2.OP_DELETE:
            return True
        members = changed or _members(value)
        return members is None or not self.changed.isdisjoint(members)


EVERYTHING: Final = EntryFilter()


def entry_filter(changed: str | None, key: str | None, shard: str | None) -> EntryFilter:
    """Return the filter that a request's parameters ask for; InvalidRequest naming the one that can't be read."""
    if changed is key is shard is None:
        return EVERYTHING
    for name, text in (("changed", changed), ("key", key)):
        if text is not None and not _is_utf8(text):
            raise InvalidRequest(f"{name}: {text[:80]!r} is not UTF-8", member=name)
    members = frozenset(changed.split(",")) if changed is not None else frozenset[str]()
    if "" in members or len(members) > MEMBERS_MAX:
        raise InvalidRequest(
            f"changed: {(changed or '')[:80]!r} is no list of 1 to {MEMBERS_MAX} members",
            hint="Write changed=nics,alias.",
            member="changed",
        )
    return EntryFilter(members, key.encode() if key is not None else None, parse_shard(shard))


def parse_shard(text: str | None) -> Shard | None:
    """Read ``2/8``: the second of eight parts. InvalidRequest unless 1 <= number <= count <= :data:`SHARDS_MAX`."""
    if text is None:
        return None
    parts = _SHARD.fullmatch(text)
    shard = Shard(int(parts[1]), int(parts[2])) if parts is not None else None
    if shard is None or not 1 <= shard.number <= shard.parts <= SHARDS_MAX:
        raise InvalidRequest(
            f"shard: {text[:80]!r} is no part of the keys",
            hint=f"Write shard=2/8 for the second of eight parts; the most is {SHARDS_MAX} parts.",
            member="shard",
        )
    return shard


def _is_utf8(text: str) -> bool:
    """False for the escapes that stand in for bytes of a command line that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _members(value: bytes) -> frozenset[str] | None:
    """The members of a JSON object; None for what is none: then nobody can say what it did not change."""
    try:
        return frozenset(decode_json(value, dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
