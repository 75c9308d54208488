"""One outbox row before it is written: checked here, because a row that the server refuses would stop its feed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.entries.feed import check_feed_id
from headrace.errors import InvalidRequest, TooLarge

OPS: Final = ("put", "patch", "delete")
"""``put`` = the full state, ``patch`` = the members changed (RFC 7396), ``delete`` = the old state."""

CHANGES_BYTES_MAX: Final = 1 << 20
"""The server takes entries up to 1 MiB; a larger row would be refused there and stop the feed, so it is refused here."""


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
    argument, TooLarge above 1 MiB.
    """
    check_feed_id(feed)
    if op not in OPS:
        raise InvalidRequest(f"op: {op!r} is none of {', '.join(OPS)}", member="op")
    if key is not None and key.startswith("\0"):
        raise InvalidRequest("key: must be text that does not begin with a NUL character", member="key")
    if isinstance(changed, str) or (
        changed is not None and not all(isinstance(name, str) for name in changed)
    ):
        raise InvalidRequest("changed: must be a list of member names", member="changed")
    text = _json_object(changes)
    size = len(text.encode()) + len((key or "").encode())
    if size > CHANGES_BYTES_MAX:
        raise TooLarge(
            f"changes: key and changes are {size} bytes of JSON; an entry takes {CHANGES_BYTES_MAX}"
        )
    return Record(
        feed, op, key, text, None if changed is None else json.dumps(list(changed), ensure_ascii=False)
    )


def _json_object(changes: Mapping[str, Any] | str | bytes) -> str:
    try:
        if isinstance(changes, str | bytes | bytearray):
            text = changes if isinstance(changes, str) else bytes(changes).decode("utf-8")
            value = json.loads(text, parse_constant=_refuse_constant)
        else:
            value = changes
            text = json.dumps(dict(changes), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")  # a lone surrogate is no text
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"changes: not a JSON object: {error}", member="changes") from None
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"changes: a JSON object is needed, not {type(value).__name__}", member="changes"
        )
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
