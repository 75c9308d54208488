"""JSON text -> documents, and what is wrong with it in the sender's own words: the member, and the entry's index.

Faces hand over bytes; whatever is malformed becomes :class:`~headrace.errors.InvalidRequest` before anything is judged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.wire.documents import TIME_MS_MAX, EntriesIn, EntryIn, ms_of_rfc3339

T = TypeVar("T", bound=msgspec.Struct)

NAME_CHARS_SHOWN_MAX: Final = 80
"""How much of a sender's own text an error repeats."""
JSON_DEPTH_MAX: Final = 512
"""Deepest nesting of ``changes`` and of ``before``. Decoders give up at about 970, sooner the deeper they are called:
without this bound a value could be taken here and be too deep for who reads it."""

_PLACE = re.compile(r"(?s)(.*?)(?: - at `\$(.*)`)?")
_IN_ENTRY = re.compile(r"(?s)\.entries\[(\d+)\]\.?(.*)")
_UNKNOWN = re.compile(r"(?s)Object contains unknown field `(.*)`")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]')
_MISSING = re.compile(r"(?s)Object missing required field `(.*)`")


class _Several(msgspec.Struct):
    """Only tells a list of entries from a single one; unknown members are passed over here."""

    entries: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_several = msgspec.json.Decoder(_Several)
_entry = msgspec.json.Decoder(EntryIn)
_entries = msgspec.json.Decoder(EntriesIn)


def decode_document(body: bytes, kind: type[T]) -> T:
    """Return the JSON document in ``body``; InvalidRequest naming the member that is unknown, missing or of a wrong type."""
    _check_text(body)
    return _decode(body, msgspec.json.Decoder(kind))


def decode_entries(body: bytes, *, ndjson: bool = False) -> list[EntryIn]:
    """Return the entries of a post: one object, ``{"entries": [...]}``, or with ``ndjson`` one object a line.

    ``changes`` and ``before`` of each are the very bytes of ``body``. Raises InvalidRequest naming member and entry.
    """
    _check_text(body)
    if ndjson:
        lines = [line for line in body.split(b"\n") if line.strip()]
        found = [_decode(line, _entry, index) for index, line in enumerate(lines)]
    elif _decode(body, _several).entries is msgspec.UNSET:
        found = [_decode(body, _entry)]
    else:
        found = _decode(body, _entries).entries
    if _opened(body) > JSON_DEPTH_MAX:
        _check_depths(found)
    return found


def convert_text(values: dict[str, str], kind: type[T]) -> T:
    """Return ``values`` (a query string, headers) as ``kind``, numbers read from their text; InvalidRequest as above."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(error) from None


def refusal(error: msgspec.ValidationError, index: int | None = None) -> InvalidRequest:
    """Return what ``error`` says as a refusal with the members ``member`` and, inside a list of entries, ``index``."""
    matched = _PLACE.fullmatch(str(error))
    reason, path = (matched[1], matched[2] or "") if matched else (str(error), "")
    if inside := _IN_ENTRY.fullmatch(path):
        index, path = int(inside[1]), inside[2]
    member = path.lstrip(".")
    if named := _UNKNOWN.fullmatch(reason):
        member, reason = ".".join(filter(None, (member, named[1]))), "there is no such member"
    elif named := _MISSING.fullmatch(reason):
        member, reason = ".".join(filter(None, (member, named[1]))), "is missing"
    return wrong(member[:NAME_CHARS_SHOWN_MAX], reason[:1].lower() + reason[1:], index)


def wrong(member: str, reason: str, index: int | None = None) -> InvalidRequest:
    """Return the refusal of one member: ``entries[2]: op: invalid enum value 'upsert'``."""
    place = [f"entries[{index}]"] if index is not None else []
    text = ": ".join([*place, *filter(None, (member,)), reason])
    return InvalidRequest(text, member=member or None, index=index)


def parse_time(text: str, member: str, index: int | None = None) -> int:
    """Return the UTC milliseconds of RFC 3339 text with a zone, or of milliseconds since 1970 written as text."""
    try:
        stamp = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else ms_of_rfc3339(text)
    except (ValueError, OverflowError):
        stamp = -1
    if not 0 <= stamp <= TIME_MS_MAX:
        raise wrong(
            member, f"{text[:NAME_CHARS_SHOWN_MAX]!r} is neither RFC 3339 nor milliseconds since 1970", index
        )
    return stamp


def _check_text(body: bytes) -> None:
    """The decoder passes over text that it does not decode, so the whole body is checked here, once."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}"
        ) from None


def _opened(text: bytes) -> int:
    """How deep ``text`` can be at most: what it opens, inside strings too."""
    return text.count(b"[") + text.count(b"{")


def _check_depths(entries: Sequence[EntryIn]) -> None:
    for index, entry in enumerate(entries):
        for member, value in (("changes", entry.changes), ("before", entry.before)):
            if value is not msgspec.UNSET and _is_too_deep(bytes(value)):
                raise wrong(member, f"is nested too deeply; the most is {JSON_DEPTH_MAX}", index)


def _is_too_deep(text: bytes) -> bool:
    if _opened(text) <= JSON_DEPTH_MAX:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        first = found[0][0]
        depth += (first in b"[{") - (first in b"]}")
        if depth > JSON_DEPTH_MAX:
            return True
    return False


def _decode(body: bytes, decoder: msgspec.json.Decoder[T], index: int | None = None) -> T:
    line = f"entries[{index}]" if index is not None else "the body"
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal(error, index) from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise InvalidRequest(f"{line} is not JSON: {reason}", index=index) from None
    except RecursionError:
        raise InvalidRequest(f"{line} is nested too deeply", index=index) from None
