"""Where a query is, as Spark stores it in a checkpoint: of each feed, which history and which entry was the last. Pure.

``docs/formats/spark-offset.md`` is its description. The first place of a query is written as what was *asked for*
("oldest", a time), not as what that meant then: Spark asks for it again after a restart while the first batch is
uncommitted, does not store the answer, and would skip entries without a word if it were another one. What it meant stands
in the first batch's end, which Spark does store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.wire.versions import SPARK_OFFSET, check_readable

T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=False):
    """In one feed: all entries up to ``sequence_id`` are done. ``lsn`` is that entry's, empty where it is not known.

    ``began_after``: only in a batch's end, where the batch begins after another entry than its start says (it was found
    out when the batch was planned).
    """

    incarnation: str
    sequence_id: int
    lsn: str = ""
    began_after: int | None = None

    @property
    def committed_at_ms(self) -> int:
        """When the last entry was appended, UTC milliseconds; 0 where it is not known."""
        return Lsn.parse(self.lsn).committed_at_ms if self.lsn else 0


class Offset(msgspec.Struct, frozen=True):
    """Where a query is: a place in each of its feeds, by name."""

    feeds: dict[str, Place]


class Asked(msgspec.Struct, frozen=True):
    """Where a query was asked to begin, in words of the option ``start``."""

    feeds: tuple[str, ...]
    start: str


class _Stored(msgspec.Struct, rename="kebab"):
    """Version 2: ``start`` where nothing is done yet, places where something is."""

    feeds: dict[str, Place] | tuple[str, ...]
    start: str | None = None


class _StoredOne(msgspec.Struct, rename="kebab"):
    """Version 1: always of one feed."""

    feed: str
    incarnation: str | None = None
    sequence_id: int | None = None
    lsn: str = ""
    began_after: int | None = None
    begin: str | None = None


def to_json(offset: Offset | Asked) -> dict[str, Any]:
    """Return what Spark stores; equal offsets give equal JSON, members in one order (Spark compares the text)."""
    document: dict[str, Any] = msgspec.to_builtins(offset)
    if isinstance(offset, Offset):
        document["feeds"] = {
            name: {member: value for member, value in sorted(place.items()) if value is not None}
            for name, place in sorted(document["feeds"].items())
        }
    else:
        document["feeds"] = sorted(document["feeds"])
    document |= {"readable-from": SPARK_OFFSET.readable_from, "written-as": SPARK_OFFSET.written_as}
    return {name: document[name] for name in sorted(document)}


def read_offset(document: Mapping[str, Any] | str) -> Offset | Asked:
    """Return what Spark stored, given as JSON or its text. Raises FormatTooNew, and InvalidRequest if it is none of ours."""
    try:
        found = json.loads(document) if isinstance(document, str) else dict(document)
        check_readable("the Spark checkpoint", int(found.get("readable-from", 1)), SPARK_OFFSET)
        return _read_first_version(found) if "feed" in found else _read(found)
    except (msgspec.ValidationError, AttributeError, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"the checkpoint's offset {str(document)[:500]} is none of a feed: {error}"
        ) from None


def from_json(document: Mapping[str, Any] | str, feeds: Sequence[str]) -> Offset | Asked:
    """Return what Spark stored for a query of ``feeds``.

    Raises what :func:`read_offset` does, and InvalidRequest if it is of other feeds (a checkpoint of another query).
    """
    offset = read_offset(document)
    if sorted(offset.feeds) != sorted(feeds):
        raise InvalidRequest(
            f"the checkpoint is of the feeds {', '.join(sorted(offset.feeds))}, the query reads "
            f"{', '.join(sorted(feeds))}: give each query its own checkpoint folder",
        )
    return offset


def _read(document: dict[str, Any]) -> Offset | Asked:
    stored = msgspec.convert(document, _Stored)
    if isinstance(stored.feeds, dict):
        return Offset(stored.feeds)
    if stored.start is None:
        raise ValueError("it has neither places nor a start")
    return Asked(stored.feeds, stored.start)


def _read_first_version(document: dict[str, Any]) -> Offset | Asked:
    stored = msgspec.convert(document, _StoredOne)
    if stored.begin is not None:
        return Asked((stored.feed,), stored.begin)
    if stored.incarnation is None or stored.sequence_id is None:
        raise ValueError("it has no place")
    place = Place(
        incarnation=stored.incarnation,
        sequence_id=stored.sequence_id,
        lsn=stored.lsn,
        began_after=stored.began_after,
    )
    return Offset({stored.feed: place})
