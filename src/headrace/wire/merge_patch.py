"""JSON merge patches (RFC 7396) on JSON text: members that a patch does not touch keep their very bytes. Pure.

The one merge that there is: consumers' folds and the tables job both use it. Numbers keep their digits and their form
(``-0``, ``0.1000``, ``1e400``): a merge works on the text of members, not on floats.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()


def apply_patch(state: bytes | None, patch: bytes) -> bytes:
    """Return the JSON text ``state`` (None: there is nothing) merged with ``patch`` (RFC 7396 §2).

    ValueError (msgspec.DecodeError among it) if one of the two is no JSON, or is nested deeper than the stack goes.
    """
    try:
        return _merged(state, patch)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be merged") from None


def _merged(state: bytes | None, patch: bytes) -> bytes:
    if not _is_object(patch):
        _EXACT.decode(patch)
        return patch
    members: dict[str, Any] = dict(_MEMBERS.decode(state)) if state is not None and _is_object(state) else {}
    for name, raw in _MEMBERS.decode(patch).items():
        text = bytes(raw)
        if text == b"null":
            members.pop(name, None)
        elif _is_object(text):
            known = members.get(name)
            members[name] = msgspec.Raw(_merged(None if known is None else bytes(known), text))
        else:
            members[name] = raw
    return _ENCODER.encode(members)


def _is_object(text: bytes) -> bool:
    return text.lstrip(b" \t\r\n").startswith(b"{")
