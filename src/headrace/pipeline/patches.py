"""JSON merge patches (RFC 7396), exactly: members that a patch doesn't touch keep their very bytes.

``patch`` entries carry the properties that changed; every fold must merge them, in feed order. Called on workers by the
tables job. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from headrace.entries.entry import Op

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Numbers go through as their own text: a float would round 0.1000 and lose what is beyond 17 digits.
_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class KeyChange(NamedTuple):
    """One entry of a key: its sequence id, what it does, and the bytes it carries."""

    sequence_id: int
    op: str
    value: bytes


def apply_patch(state: bytes | None, patch: bytes) -> bytes:
    """Return the JSON text of ``state`` (None: there is nothing) merged with ``patch`` (RFC 7396 §2).

    Raises msgspec.DecodeError if one of them is no JSON.
    """
    if not _is_object(patch):
        _EXACT.decode(patch)
        return patch
    members: dict[str, Any] = dict(_MEMBERS.decode(state)) if state is not None and _is_object(state) else {}
    for name, raw in _MEMBERS.decode(patch).items():
        text = bytes(raw)
        if text == b"null":
            members.pop(name, None)
        elif _is_object(text):
            current = members.get(name)
            members[name] = merged(
                _EXACT.decode(bytes(current)) if current is not None else None, _EXACT.decode(text)
            )
        else:
            members[name] = raw
    return _ENCODER.encode(members)


def merged(target: Any, patch: Any) -> Any:
    """Return the JSON value ``target`` merged with ``patch`` (RFC 7396 §2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def fold(changes: Iterable[KeyChange]) -> KeyChange:
    """Fold the entries of one key, in ascending sequence ids, into the one put or delete that they come to.

    A patch of nothing (no entry before it, or a delete) is merged into the empty object.
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


def _is_object(text: bytes) -> bool:
    return text.lstrip(b" \t\r\n").startswith(b"{")
