"""Entries that a consumer refused, and those held behind them: what is kept of each, and their order. Pure.

A parked entry holds back the later entries *of its key only*, in their order. So within a key nothing is ever overtaken, and
the rest of the feed goes on. An entry whose predecessors are gone (replayed or dropped) is *due*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from headrace.errors import ParkedTooMany, ParkedWaiting
from headrace.listener.change import Change
from headrace.runtime.typed_json import decode_json
from headrace.wire.documents import EntryOut

PARKED_MAX: Final = 1_000
"""How many entries a listener parks before it stops: whoever parks more has a broken consumer, not broken entries."""


PARKED_BYTES_MAX: Final = 16 << 20
"""How many bytes a listener's parked entries may take, as they are stored: a file of bookmarks is written anew with each."""


class ParkedMax(NamedTuple):
    """How much a listener may park: entries, and bytes as they are stored."""

    entries: int
    size: int = PARKED_BYTES_MAX


class ParkedEntry(msgspec.Struct, rename="kebab", kw_only=True):
    """One entry out of the way. ``entry`` is its line, as the feed gave it.

    ``held``: the consumer was never asked, because an earlier entry of its key is parked. Else ``reason`` and ``attempts``
    say what became of the asking.
    """

    sequence_id: int
    incarnation: str
    key: str
    held: bool
    reason: str
    attempts: int
    parked_at: str
    entry: Raw

    def change(self) -> Change:
        """Return it as the change that the consumer is to be asked about again."""
        return Change(self.incarnation, decode_json(self.entry, EntryOut))


def key_of(change: Change) -> str:
    """Return what tells this change's key from all others, whether it is text or bytes."""
    entry = change.entry
    return f"text:{entry.key}" if isinstance(entry.key, str) else f"base64:{entry.key_base64}"


def parked_of(change: Change, parked_at: str, *, reason: str = "", attempts: int = 0) -> ParkedEntry:
    """Return ``change`` as a parked entry; held if the consumer was not asked (no ``attempts``)."""
    return ParkedEntry(
        sequence_id=change.sequence_id,
        incarnation=change.incarnation,
        key=key_of(change),
        held=not attempts,
        reason=reason,
        attempts=attempts,
        parked_at=parked_at,
        entry=Raw(change.line().rstrip(b"\n")),
    )


def by_key(entries: Iterable[ParkedEntry]) -> list[list[ParkedEntry]]:
    """Return the entries of each key in their order, the keys by their first entry."""
    found: dict[str, list[ParkedEntry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.sequence_id):
        found.setdefault(entry.key, []).append(entry)
    return list(found.values())


def overtakes(change: Change) -> bool:
    """Tell whether ``change`` can touch other keys than its own, and so must not pass parked entries."""
    return change.entry.control == "truncate" or change.op == "batch"


def may_park(change: Change) -> bool:
    """Tell whether ``change`` concerns one key alone; a control entry or a batch concerns others too."""
    return not change.is_control and change.op != "batch"


def refuse_parked(parked: list[ParkedEntry]) -> None:
    """Refuse to hand entries over in a way that does not hold back the later ones of parked keys, if any are."""
    if parked:
        first = parked[0]
        raise ParkedWaiting(
            f"{len(parked)} entries are parked, the first is {first.sequence_id} of {first.key}: what follows of these keys "
            "waits for them",
            parked=len(parked),
            sequence_id=first.sequence_id,
        )


def encode_parked(entry: ParkedEntry) -> bytes:
    """Return ``entry`` as it is stored; its length is what it counts."""
    return msgspec.json.encode(entry)


def check_parked(count: int, size: int, parked_max: ParkedMax, entry: ParkedEntry) -> None:
    """Refuse to keep ``entry`` if with it ``count`` parked ones of ``size`` bytes are more than ``parked_max``."""
    if count > parked_max.entries:
        raise ParkedTooMany(
            f"{parked_max.entries} entries are parked, and entry {entry.sequence_id} of {entry.key} would be one more",
            parked_max=parked_max.entries,
            sequence_id=entry.sequence_id,
        )
    if size > parked_max.size:
        raise ParkedTooMany(
            f"with entry {entry.sequence_id} of {entry.key} the parked ones would take {size} bytes, more than "
            f"{parked_max.size}",
            parked_bytes_max=parked_max.size,
            sequence_id=entry.sequence_id,
        )
