"""The change feed API over HTTP, one method a call. Never retries by itself: who calls knows what a retry would mean.

A call that got no answer raises :class:`~headrace.errors.ServerUnreachable`: a write's outcome is then *unknown*, and the
caller asks the server where the feed is before it goes on (design rule "after every unclear outcome").
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from headrace import errors
from headrace.client.credential import Credential, check_may_send
from headrace.client.http_problem import judged_by_token, problem_of
from headrace.client.operator_calls import OperatorCalls, encoded
from headrace.client.tls import context_for
from headrace.entries.bookmark import Bookmark
from headrace.runtime.typed_json import decode_json
from headrace.wire import documents as doc
from headrace.wire.filters import EVERYTHING, EntryFilter
from headrace.wire.schema_documents import SchemaList, SchemaPlace

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
"""A server that does not accept a connection in this time is not there."""
RETIRED_S = 90.0
"""Added to the time-out: how long old connections are kept after :meth:`FeedClient.reconnect`; a long poll ends before."""


class FramesRange(NamedTuple):
    """Stored frames that overlap a range, as bytes, and the feed's bounds when they were read."""

    data: bytes
    incarnation: str
    head: int
    oldest: int


def place_headers(bookmark: Bookmark | None) -> dict[str, str]:
    """Return the headers by which a reader says what it knows of the place it names."""
    if bookmark is None:
        return {}
    headers = {"Headrace-Incarnation": bookmark.incarnation}
    if bookmark.lsn is not None:
        headers["Headrace-Lsn"] = str(bookmark.lsn)
    return headers


class FeedClient(OperatorCalls):
    """A connection pool to one server. Use as ``async with FeedClient(url) as client`` or call :meth:`close`."""

    def __init__(
        self,
        server: str,
        *,
        token: str | Credential | None = None,
        timeout_s: float = 30.0,
        insecure: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        """Speak to ``server`` (``http://host:port``); ``token`` is sent as a bearer token to that origin only.

        A Credential is asked at each call, so its file may change. TokenExposed where a token would go in clear to another
        machine, unless ``insecure``. ``ca_file``: the authorities to trust, else those of the environment (``client.tls``);
        ConfigInvalid if a TLS file can't be used.
        """
        if not server.startswith(("http://", "https://")):
            raise errors.Usage(f"{server!r} is not a server address", hint="Write http://HOST:PORT.")
        self.server = server.rstrip("/")
        self.ca_file = ca_file
        self._timeout_s = timeout_s
        credential = Credential(token) if isinstance(token, str) and token else token or None
        self._credential = credential
        if credential is not None:
            check_may_send(self.server, insecure=insecure)
        self._http = self._pool()
        self._retired: list[tuple[float, httpx.AsyncClient]] = []

    def _pool(self) -> httpx.AsyncClient:
        credential = self._credential
        try:
            return httpx.AsyncClient(
                base_url=self.server,
                verify=context_for(self.server, self.ca_file),
                event_hooks={"request": [credential.request_hook(self.server)]} if credential else None,
                timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S),
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
                trust_env=False,
                follow_redirects=False,
            )
        except httpx.InvalidURL as error:
            raise errors.Usage(
                f"{self.server!r} is not a server address: {error}", hint="Write http://HOST:PORT."
            ) from None

    async def reconnect(self) -> None:
        """Use new connections from now on. Calls that are under way go on with theirs until their time-out."""
        now = asyncio.get_running_loop().time()
        old, self._http = self._http, self._pool()
        unused = [one for one in self._retired if one[0] <= now]
        self._retired = [one for one in self._retired if one[0] > now]
        self._retired.append((now + self._timeout_s + RETIRED_S, old))
        for _, pool in unused:
            await pool.aclose()

    async def close(self) -> None:
        """Close all connections."""
        for pool in (self._http, *(pool for _, pool in self._retired)):
            await pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def register_publisher(
        self,
        agent_id: str,
        feed: str,
        *,
        instance: str | None = None,
        takeover: bool = False,
        tenant_id: str | None = None,
        shared: bool = False,
        snapshot_url: str | None = None,
    ) -> doc.PublisherRegistered:
        """Claim ``feed`` for ``agent_id``. Idempotent for the same instance; a new instance fences the older one.

        ``shared``: join it beside other producers instead; a feed is owned or shared for life. ``snapshot_url``: where the
        publisher's snapshots are; the answer has the key of their tickets.
        """
        body = doc.RegisterPublisher(
            agent_id=agent_id,
            change_feed_id=feed,
            instance=instance if instance is not None else msgspec.UNSET,
            takeover=takeover,
            shared=shared,
            tenant_id=tenant_id if tenant_id is not None else msgspec.UNSET,
            snapshot_url=snapshot_url if snapshot_url is not None else msgspec.UNSET,
        )
        return await self._json(
            "POST", "/publishers/register", doc.PublisherRegistered, content=encoded(body)
        )

    async def append(
        self,
        feed: str,
        entries: Sequence[doc.EntryIn],
        *,
        epoch: int | None = None,
        incarnation: str | None = None,
        source_position: bytes | None = None,
        marked_at_ms: int | None = None,
        traceparent: str | None = None,
    ) -> doc.Appended:
        """Append ``entries`` atomically. Returns only after they are durable; a repeat answers ``duplicate``."""
        headers = {
            "Headrace-Epoch": str(epoch) if epoch is not None else None,
            "Headrace-Incarnation": incarnation,
            "Headrace-Source-Position": base64.b64encode(source_position).decode()
            if source_position
            else None,
            "Headrace-Marked-At": str(marked_at_ms) if marked_at_ms is not None else None,
            "traceparent": traceparent,
        }
        return await self._json(
            "POST",
            f"{_feed(feed)}/entries",
            doc.Appended,
            content=encoded(doc.EntriesIn(entries=list(entries))),
            headers={name: value for name, value in headers.items() if value is not None},
        )

    async def tail(self, feed: str, producer: str | None = None) -> doc.Tail:
        """Return where ``feed`` ends, and the last append of ``producer`` if one is named."""
        return await self._json("GET", f"{_feed(feed)}/tail", doc.Tail, params=_given(producer=producer))

    async def settings(self, feed: str) -> doc.FeedSettings:
        """Return the settings of ``feed``."""
        return await self._json("GET", f"{_feed(feed)}/settings", doc.FeedSettings)

    async def configure(self, feed: str, change: doc.ChangeSettings) -> doc.FeedSettings:
        """Change the settings of ``feed``; what ``change`` leaves out stays as it is. Durable when answered."""
        return await self._json("PUT", f"{_feed(feed)}/settings", doc.FeedSettings, content=encoded(change))

    async def register_listener(
        self, listener_id: str, feed: str, *, hold: bool = False
    ) -> doc.ListenerRegistered:
        """Register a listener; idempotent. Returns the feed's bounds."""
        body = doc.RegisterListener(listener_id=listener_id, change_feed_id=feed, hold=hold)
        return await self._json("POST", "/listeners/register", doc.ListenerRegistered, content=encoded(body))

    async def poll(
        self,
        feed: str,
        listener_id: str,
        after: int,
        *,
        bookmark: Bookmark | None = None,
        timeout_ms: int = 30_000,
        limit: int | None = None,
        wanted: EntryFilter = EVERYTHING,
    ) -> doc.ChangesList:
        """Long poll: the entries after ``after`` as soon as there are any, an empty list at the time-out.

        With ``wanted``, only those that pass; go on from ``last_sequence_id``.
        """
        params = {"listener-id": listener_id, "after-sequence-id": after, "timeout-ms": timeout_ms}
        return await self._json(
            "GET",
            f"{_feed(feed)}/poll",
            doc.ChangesList,
            params=params | _given(limit=limit) | wanted.parameters(),
            headers=place_headers(bookmark),
            timeout_s=self._timeout_s + timeout_ms / 1000,
        )

    async def read(
        self,
        feed: str,
        first: int,
        last: int | None = None,
        *,
        limit: int | None = None,
        bookmark: Bookmark | None = None,
        wanted: EntryFilter = EVERYTHING,
    ) -> doc.ChangesList:
        """Return the entries ``first`` … ``last`` (inclusive), as many as the server's limits allow in one answer.

        With ``wanted``, only those that pass; go on from ``last_sequence_id``.
        """
        return await self._json(
            "GET",
            f"{_feed(feed)}/entries",
            doc.ChangesList,
            params={"beg-sequence-id": first}
            | _given(**{"end-sequence-id": last, "limit": limit})
            | wanted.parameters(),
            headers=place_headers(bookmark),
        )

    async def read_since(self, feed: str, ms: int, *, limit: int | None = None) -> doc.ChangesList:
        """Return the entries from the first one on that was committed at ``ms`` (UTC milliseconds since 1970) or later.

        A time in the future is the head, one below the retained range SequenceNotAvailable.
        """
        params = {"after-time": ms} | _given(limit=limit)
        return await self._json("GET", f"{_feed(feed)}/entries", doc.ChangesList, params=params)

    async def read_frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        """Return the whole stored frames that overlap ``first`` … ``last``, up to 8 MiB or one frame.

        The caller trims the first and last frame and asks again from the last sequence id + 1. ``lsn`` is that of the
        entry ``first`` - 1.
        """
        # Compressed they would cost server and reader more than all the rest of reading them.
        headers = {"Accept": doc.FRAMES_TYPE, "Accept-Encoding": "identity"} | _given(
            **{"Headrace-Incarnation": incarnation, "Headrace-Lsn": lsn}
        )
        params = {"beg-sequence-id": first, "end-sequence-id": last}
        answer = await self._call("GET", f"{_feed(feed)}/entries", params=params, headers=headers)
        try:
            return FramesRange(
                answer.content,
                answer.headers["Headrace-Incarnation"],
                int(answer.headers["Headrace-Head-Sequence-Id"]),
                int(answer.headers["Headrace-Oldest-Sequence-Id"]),
            )
        except (KeyError, ValueError) as error:
            raise _no_headrace(answer, f"a header is missing or wrong: {error}") from None

    async def put_position(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Report a listener's durable place, so that its lag becomes visible."""
        body = doc.PositionIn(
            incarnation=bookmark.incarnation,
            sequence_id=bookmark.sequence_id,
            lsn=str(bookmark.lsn) if bookmark.lsn is not None else None,
        )
        path = f"/listeners/{quote(listener_id, safe='')}{_feed(feed)}/position"
        await self._call("PUT", path, content=encoded(body))

    async def feeds(self) -> list[doc.FeedView]:
        """Return all feeds."""
        return (await self._json("GET", "/feeds", doc.FeedList)).feeds

    async def feed(self, feed: str) -> doc.FeedView:
        """Return one feed; FeedNotFound if there is none of this name."""
        return await self._json("GET", _feed(feed), doc.FeedView)

    async def schemas(self, feed: str) -> list[SchemaPlace]:
        """Return the newest schema of each table of ``feed``, by sequence id. Retention takes none away."""
        found: list[SchemaPlace] = []
        while True:
            params = {"after": found[-1].sequence_id if found else 0}
            page = (await self._json("GET", f"{_feed(feed)}/schemas", SchemaList, params=params)).schemas
            if not page:
                return found
            found += page

    async def schema(self, feed: str, database: str, table: str, version: int) -> bytes:
        """Return a table's schema, byte for byte as its entry has it; SchemaNotFound."""
        names = "/".join(quote(name, safe="") for name in (database, table))
        return (await self._call("GET", f"{_feed(feed)}/schemas/{names}/{version}")).content

    async def ready(self) -> doc.Health:
        """Return the server's readiness; it is an answer, not an error, when it is not ready."""
        answer = await self._send("GET", "/readyz")
        return _decode(answer, doc.Health)

    async def _json(self, method: str, path: str, kind: type[T], **options: Any) -> T:
        return _decode(await self._call(method, path, **options), kind)

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = await self._send(method, path, **options)
        if answer.status_code >= 400:
            raise self.problem(answer)
        if answer.status_code >= 300:
            raise _no_headrace(answer, f"status {answer.status_code}")
        return answer

    def problem(self, answer: httpx.Response) -> errors.HeadraceError:
        """Return the error in ``answer``, which knows whether this client may have another token later."""
        error = problem_of(answer.status_code, answer.content, answer.headers)
        return judged_by_token(error, self._credential)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        given = dict(headers or {})
        if content is not None:
            given["Content-Type"] = "application/json"
        bound = timeout_s if timeout_s is not None else self._timeout_s
        try:
            async with asyncio.timeout(
                bound + CONNECT_TIMEOUT_S
            ):  # a peer that trickles bytes must not hold us
                return await self._http.request(
                    method,
                    path,
                    content=content,
                    params=params,
                    headers=given,
                    timeout=httpx.Timeout(bound, connect=CONNECT_TIMEOUT_S),
                )
        except TimeoutError:
            raise errors.ServerUnreachable(f"{self.server}: no whole answer within {bound:g} s") from None
        except httpx.RequestError as error:
            reason = str(error) or type(error).__name__
            raise errors.ServerUnreachable(f"{self.server}: {reason}") from None


def _decode(answer: httpx.Response, kind: type[T]) -> T:
    try:
        return decode_json(answer.content, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_headrace(answer, str(error)) from None


def _no_headrace(answer: httpx.Response, reason: str) -> errors.ServerUnreachable:
    return errors.ServerUnreachable(
        f"{answer.url}: the answer is not what a Headrace server sends: {reason}",
        hint="Is this address a Headrace server?",
    )


def _feed(feed: str) -> str:
    return f"/feeds/{quote(feed, safe='')}"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
