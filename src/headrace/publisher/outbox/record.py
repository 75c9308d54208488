"""One outbox row before it is written: checked here, because a row that the server refuses would stop its feed.

So whatever the server's decoder refuses is refused here too, with nothing but the standard library; where the server's limit
depends on what is not known here (the feed's ``key-field``, its agent's names), the narrowest case counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.entries.feed import check_feed_id
from headrace.errors import InvalidRequest, TooLarge

OPS: Final = ("put", "patch", "delete")
"""``put`` = the full state, ``patch`` = the members changed (RFC 7396), ``delete`` = the old state."""

ENTRY_BYTES_MAX: Final = 1 << 20
"""The server takes entries up to 1 MiB; a larger row would be refused there and stop the feed, so it is refused here."""

ENVELOPE_BYTES: Final = 128
"""What an entry's other parts take at most in the form that the server measures: transaction, times, checksum, lengths."""

NAME_BYTES: Final = 8
"""What each name in ``changed`` takes there beside its text."""

DEPTH_MAX: Final = 500
"""Most lists and objects inside one another: decoders end with the stack, and the server's is deeper than the caller's."""

_ESCAPED_BACKSLASH: Final = "\\\\"
_SURROGATE_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_NUMBER: Final = re.compile(r"[-+.0-9eE]+")


class Record(NamedTuple):
    """An outbox row as the application gives it; ``changes`` and ``changed`` are JSON text."""

    feed: str
    op: str
    key: str | None
    changes: str
    changed: str | None


def make_record(
    feed: str,
    changes: Mapping[str, Any] | str | bytes,
    key: str | None,
    op: str,
    changed: Sequence[str] | None,
) -> Record:
    """Return the row for these arguments of :meth:`~headrace.publisher.outbox.Outbox.add`.

    Ready JSON (``str`` or UTF-8 ``bytes``) is checked and then kept byte for byte. Raises InvalidRequest naming the
    argument, TooLarge if the server would not take the entry.
    """
    check_feed_id(feed)
    if op not in OPS:
        raise InvalidRequest(f"op: {op!r} is none of {', '.join(OPS)}", member="op")
    if key is not None and (not _is_text(key) or key.startswith("\0")):
        raise InvalidRequest("key: must be text that does not begin with a NUL character", member="key")
    names = None if changed is None or isinstance(changed, str) else list(changed)
    if isinstance(changed, str) or not all(_is_text(name) for name in names or ()):
        raise InvalidRequest("changed: must be a list of member names", member="changed")
    text, members = _json_object(changes)
    size = len(text.encode()) + sum(len(name.encode()) + NAME_BYTES for name in names or ())
    if key is not None:
        size += len(key.encode())
    else:
        _check_key_inside(members)
        # Which member is the key, the feed says: reckon with the longest. Short text can't hold one that is too long.
        size += _longest_scalar(text, members) if 2 * size > ENTRY_BYTES_MAX - ENVELOPE_BYTES else 0
    if size > ENTRY_BYTES_MAX - ENVELOPE_BYTES:
        raise TooLarge(
            f"changes: key, changes and changed are {size} bytes; an entry takes {ENTRY_BYTES_MAX - ENVELOPE_BYTES}",
            hint="Give the key by itself, or split the change.",
        )
    return Record(feed, op, key, text, None if names is None else json.dumps(names, ensure_ascii=False))


def _is_text(value: object) -> bool:
    """Return whether ``value`` is text that UTF-8 can hold: a lone surrogate is none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_key_inside(members: Mapping[Any, Any]) -> None:
    for name, value in members.items():
        if isinstance(value, str) and value.startswith("\0"):
            raise InvalidRequest(
                f"changes: {str(name)[:80]!r} begins with a NUL character, and may be the feed's key",
                hint="Give the key by itself: no key may begin with NUL.",
                member="changes",
            )


def _longest_scalar(text: str, members: Mapping[Any, Any]) -> int:
    """Return the most bytes that a member taken for the key can have: a string's text, a number's JSON text."""
    strings = [len(value.encode()) for value in members.values() if isinstance(value, str)]
    numbers = [len(found) for found in _NUMBER.findall(text)]
    return max([*strings, *numbers], default=0)


def _json_object(changes: Mapping[str, Any] | str | bytes) -> tuple[str, Mapping[Any, Any]]:
    """Return JSON text and its members."""
    try:
        if isinstance(changes, str | bytes | bytearray):
            text = changes if isinstance(changes, str) else bytes(changes).decode("utf-8")
            value = json.loads(text, parse_constant=_refuse_constant)
        else:
            value = changes
            text = json.dumps(dict(changes), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")  # a lone surrogate is no text
        _check_escapes(text)
        _check_depth(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"changes: not a JSON object: {error}", member="changes") from None
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"changes: a JSON object is needed, not {type(value).__name__}", member="changes"
        )
    return text, value


def _check_escapes(text: str) -> None:
    if "\\u" not in text:
        return
    found = _SURROGATE.search(_SURROGATE_PAIR.sub(" ", text.replace(_ESCAPED_BACKSLASH, " ")))
    if found is not None:
        raise ValueError(f"{found[0]}...: a surrogate without its other half is no character")


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > DEPTH_MAX:
            raise ValueError(f"nested more than {DEPTH_MAX} deep")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
