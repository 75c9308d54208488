"""Two patches of one key (RFC 7396) -> one that does the same, where there is one. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()


def joined_patch(first: bytes, second: bytes) -> bytes | None:
    """Return the patch that does what ``first`` and then ``second`` do to any state; None if no patch does.

    There is none where the first one replaces or removes what the second one changes in part: a patch can't say "this
    object and nothing else". ValueError (msgspec.DecodeError among it) if one of the two is no JSON.
    """
    try:
        return _joined(first, second)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be merged") from None


def is_object(text: bytes) -> bool:
    """Tell whether JSON text is an object."""
    return text.lstrip(b" \t\r\n").startswith(b"{")


def _joined(first: bytes, second: bytes) -> bytes | None:
    if not (is_object(first) and is_object(second)):
        return None
    members: dict[str, Any] = dict(_MEMBERS.decode(first))
    for name, raw in _MEMBERS.decode(second).items():
        text = bytes(raw)
        if name not in members or not is_object(text):
            members[name] = raw
            continue
        part = _joined(bytes(members[name]), text)
        if part is None:
            return None
        members[name] = msgspec.Raw(part)
    return _ENCODER.encode(members)
