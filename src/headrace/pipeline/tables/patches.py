"""The fold of a key's entries for the tables job, which calls it on workers. Pure.

``patch`` entries carry the properties that changed; they are merged (RFC 7396) in feed order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.entries.entry import Op
from headrace.wire.merge_patch import apply_patch


class KeyChange(NamedTuple):
    """One entry of a key: its sequence id, what it does, and the bytes it carries."""

    sequence_id: int
    op: str
    value: bytes


def fold(changes: Iterable[KeyChange]) -> KeyChange:
    """Fold the entries of one key, in ascending sequence ids, into the one put or delete that they come to.

    A patch of nothing (no entry before it, or a delete) is merged into the empty object. ValueError for what can't be
    merged.
    """
    state: bytes | None = None
    last = KeyChange(0, Op.DELETE, b"")
    for last in changes:
        if last.op == Op.DELETE:
            state = None
        elif last.op == Op.PATCH:
            state = apply_patch(state, last.value)
        else:
            state = last.value
    if state is None:
        return KeyChange(last.sequence_id, Op.DELETE, last.value)
    return KeyChange(last.sequence_id, Op.PUT, state)
