"""``GET /snapshot``: the agent's HTTP face. Each encoding is one file, so ranges and ETags mean bytes that stay the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from headrace.access.asgi import Receive, Scope, Send
from headrace.access.bearer import challenge_of
from headrace.errors import (
    HeadraceError,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
    SnapshotUnavailable,
)
from headrace.errors.problem import PROBLEM_TYPE, problem_document, problem_headers
from headrace.publisher.snapshot.connection import cut
from headrace.publisher.snapshot.draft import ENCODINGS
from headrace.publisher.snapshot.guard import Ask, SnapshotGuard
from headrace.publisher.snapshot.maker import Making, SnapshotMaker
from headrace.publisher.snapshot.settings import PATH
from headrace.publisher.snapshot.spool import Spool, Whole
from headrace.runtime.disk import DiskFile
from headrace.runtime.logs import get_logger
from headrace.runtime.runbook import PAGE_TYPE, addressed_page

logger = get_logger("snapshot")

CHUNK_BYTES: Final = 256 << 10
"""Read and sent at a time: what one listener takes of memory, twice."""

STALLED_S_MAX: Final = 60.0
"""A listener that takes nothing for so long is cut; it can come back for the rest."""

QUERY_BYTES_MAX: Final = 16 << 10
"""Longest query: a ticket takes up to 8 KB."""

_SEQUENCE_ID: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_RANGE: Final = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})", re.ASCII)
_MEMBERS: Final = {"change-feed-id", "listener-id", "at-least", "snapshot-id", "ticket"}


class Span(NamedTuple):
    """Bytes ``first`` to ``end`` - 1 of a file."""

    first: int
    end: int


class _Answer:
    """Knows whether an answer has begun: then it can only be cut."""

    def __init__(self, send: Send) -> None:
        self.is_begun = False
        self._send = send

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.is_begun = True
        await self._send(message)


class SnapshotFace:
    """An ASGI application. What a call may have, ``guard`` says; what there is, ``maker``."""

    def __init__(self, maker: SnapshotMaker, spool: Spool, guard: SnapshotGuard, *, answers_max: int) -> None:
        """``answers_max``: how many snapshots are sent at once; each takes a connection, a file and two chunks of memory."""
        self._answers_max = answers_max
        self._answers = 0
        self._maker = maker
        self._spool = spool
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call; errors become problem documents."""
        headers = _headers_of(scope)
        given = headers.get("authorization", [])
        answer = _Answer(send)
        try:
            await self._answer(scope, headers, answer.send)
        except (HeadraceError, OSError) as raised:
            if answer.is_begun or isinstance(raised, TimeoutError):
                logger.info("a listener is cut within a snapshot", reason=str(raised) or "it takes nothing")
                cut(scope)
                return
            error = raised if isinstance(raised, HeadraceError) else _unreadable(raised)
            logger.info("a snapshot was refused", code=error.code, detail=error.detail)
            extra = problem_headers(error)
            challenge = challenge_of(error, asked=bool(given))
            if challenge is not None:
                extra["WWW-Authenticate"] = challenge
            await _send_document(scope, send, error.http_status, problem_document(error), extra)

    async def _answer(self, scope: Scope, headers: Mapping[str, list[str]], send: Send) -> None:
        page = await asyncio.to_thread(addressed_page, scope["path"])
        if page is not None:
            await _send_content(scope, send, 200, page.encode(), {"Content-Type": PAGE_TYPE})
            return
        if scope["path"] != PATH:
            raise RouteNotFound(f"there is nothing at {scope['path'][:200]}")
        if scope["method"] not in {"GET", "HEAD"}:
            raise MethodNotAllowed(f"{PATH} takes GET and HEAD")
        ask, ticket = _read_query(scope["query_string"])
        await self._guard.check(ask, ticket, headers.get("authorization", []))
        found = await self._maker.find(ask)
        if isinstance(found, Making):
            document = {"state": "being-made", "rows": found.rows}
            await _send_document(scope, send, 202, document, {"Retry-After": "1"})
            return
        encoding = choose_encoding(headers.get("accept-encoding", []))
        tag = etag_of(found, encoding)
        size = found.sizes[encoding]
        fixed = _fixed_headers(found, encoding, tag)
        asked = headers.get("range", [])
        if_range = headers.get("if-range", [])
        span = read_range(asked[0], size) if asked and if_range in ([], [tag]) else None
        if span is not None and span.first >= span.end:
            await _start(send, 416, {**fixed, "Content-Range": f"bytes */{size}", "Content-Length": "0"})
            await send({"type": "http.response.body", "body": b""})
            return
        if span is not None:
            fixed["Content-Range"] = f"bytes {span.first}-{span.end - 1}/{size}"
        whole = Span(0, size) if span is None else span
        fixed["Content-Length"] = str(whole.end - whole.first)
        try:
            with self._counted(), self._spool.reading(found, encoding) as file:
                await _start(send, 200 if span is None else 206, fixed)
                await self._send_span(scope, send, found, file, whole)
        except FileNotFoundError:
            raise SnapshotUnavailable("the snapshot's file is gone; it is made anew") from None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count an answer while it is sent; SnapshotUnavailable if there are too many."""
        if self._answers >= self._answers_max:
            raise SnapshotUnavailable(
                f"{self._answers} listeners are being sent a snapshot, the most that this agent serves at once",
                hint="Try again later; a higher limit of open files lets the agent serve up to 200.",
            )
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1

    async def _send_span(self, scope: Scope, send: Send, whole: Whole, file: DiskFile, span: Span) -> None:
        """Send the bytes of ``span``, as fast as they are taken. A listener that stalls, or is too late, is cut."""
        place = span.end if scope["method"] == "HEAD" else span.first
        while place < span.end:
            size = min(CHUNK_BYTES, span.end - place)
            data = await asyncio.to_thread(file.read_at, place, size)
            self._spool.named(whole.snapshot_id, whole.change_feed_id)
            place += len(data)
            message = {"type": "http.response.body", "body": data, "more_body": True}
            async with asyncio.timeout(STALLED_S_MAX):
                await send(message)
        await send({"type": "http.response.body", "body": b""})


def _unreadable(error: OSError) -> SnapshotUnavailable:
    return SnapshotUnavailable(f"the spool can't be read: {error.strerror or type(error).__name__}")


def choose_encoding(accepted: Sequence[str]) -> str:
    """Return the best encoding that ``Accept-Encoding`` takes (RFC 9110 §12.5.3): zstd, gzip, else identity."""
    weights: dict[str, float] = {}
    for part in ",".join(accepted).split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                weight = _weight(parameter[2:])
        weights[name] = weight
    best = max(reversed(ENCODINGS), key=lambda name: weights.get(name, weights.get("*", 0.0)))
    return best if weights.get(best, weights.get("*", 0.0)) > 0 else "identity"


def _weight(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def read_range(text: str, size: int) -> Span | None:
    """Return the bytes that a ``Range`` of a file of ``size`` bytes means, an empty span if none of them are there.

    None for what RFC 9110 lets a server ignore: other units, several ranges, what is malformed.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return Span(max(0, size - int(found[2])), size)
    first = int(found[1])
    if found[2] and int(found[2]) < first:
        return None
    return Span(first, min(size, int(found[2]) + 1 if found[2] else size))


def etag_of(whole: Whole, encoding: str) -> str:
    """Return the entity tag of one encoding of a snapshot, with its quotes."""
    return f'"{whole.snapshot_id}{"" if encoding == "identity" else f"-{encoding}"}"'


def _fixed_headers(whole: Whole, encoding: str, tag: str) -> dict[str, str]:
    headers = {
        "Headrace-Snapshot-Id": whole.snapshot_id,
        "Headrace-Sequence-Id": str(whole.sequence_id),
        "Headrace-Incarnation": whole.incarnation,
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Content-Type": "application/x-ndjson",
        "Cache-Control": "no-store",
        "Vary": "Accept-Encoding",
    }
    if encoding != "identity":
        headers["Content-Encoding"] = encoding
    return headers


def _read_query(query: bytes) -> tuple[Ask, str | None]:
    if len(query) > QUERY_BYTES_MAX:
        raise InvalidRequest("the query is too long")
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    members = dict(pairs)
    for name, _ in pairs:
        if name not in _MEMBERS:
            raise InvalidRequest(f"{name[:80]}: there is no such parameter", member=name[:80])
    if len(members) < len(pairs):
        raise InvalidRequest("a parameter is given twice")
    for name in ("change-feed-id", "listener-id"):
        if not members.get(name):
            raise InvalidRequest(f"{name}: is missing", member=name)
    at_least = members.get("at-least", "0")
    if not _SEQUENCE_ID.fullmatch(at_least):
        raise InvalidRequest("at-least: expected a sequence id", member="at-least")
    ask = Ask(members["change-feed-id"], members["listener-id"], int(at_least), members.get("snapshot-id"))
    return ask, members.get("ticket")


def _headers_of(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _send_document(
    scope: Scope, send: Send, status: int, document: Any, headers: Mapping[str, str]
) -> None:
    content = msgspec.json.encode(document, enc_hook=str)
    media_type = PROBLEM_TYPE if status >= 400 else "application/json"
    await _send_content(scope, send, status, content, {"Content-Type": media_type, **headers})


async def _send_content(
    scope: Scope, send: Send, status: int, content: bytes, headers: Mapping[str, str]
) -> None:
    await _start(send, status, {"Content-Length": str(len(content)), **headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})
