"""Fetches a publisher's snapshot: 202 until it is made, rows as they come, and on from where a connection was cut.

The server sends us to the publisher with a ticket in the address. The second call goes over a client that knows no token,
follows no redirect and takes no proxy from the environment: whatever stands there, our token does not reach it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import httpx
import msgspec

from headrace.client.http import CONNECT_TIMEOUT_S
from headrace.client.http_problem import problem_of
from headrace.client.hydration import HydrationClient
from headrace.client.snapshot_body import SnapshotBody, SnapshotHeader, SnapshotRow
from headrace.client.snapshot_decoding import decoder_of
from headrace.client.tls import client_context
from headrace.errors import HeadraceError, ServerUnreachable, SnapshotBroken

IDLE_S_MAX: Final = 60.0
"""A publisher that sends nothing for so long is taken for gone; what came still counts."""
PIECE_BYTES: Final = 16 << 10
"""Encoded bytes are taken in pieces of this size: how much of a fetch that was cut may come twice."""
SHORT_BYTES_MAX: Final = 64 << 10
"""Taken of an answer that is no snapshot: a problem, or how far it is."""
PAUSE_S_MAX: Final = 30.0
"""A longer Retry-After is not waited out."""
ACCEPTED: Final = "zstd, gzip"


@dataclass(frozen=True, slots=True)
class StillMade:
    """The publisher is reading its source: ask again after ``seconds``; ``rows`` of it are there."""

    seconds: float
    rows: int


@dataclass(frozen=True, slots=True)
class SnapshotFound:
    """A snapshot is there. ``bytes_total``: of its encoded body; None if it is not said."""

    snapshot_id: str
    sequence_id: int
    incarnation: str
    etag: str
    encoding: str
    bytes_total: int | None


class SnapshotFetch:
    """One listener's fetch of one snapshot at a time. Call :meth:`open`, then :meth:`rows`; after an error again, naming it.

    ``bytes_done``: encoded bytes whose rows were given. ``begun``: rows of the present snapshot were given before, so they
    go on; else they begin anew.
    """

    def __init__(self, client: HydrationClient, feed: str, listener_id: str) -> None:
        self._client = client
        self._feed = feed
        self._listener_id = listener_id
        self._http = httpx.AsyncClient(
            verify=client_context(client.ca_file),
            timeout=httpx.Timeout(IDLE_S_MAX, connect=CONNECT_TIMEOUT_S),
            trust_env=False,
            follow_redirects=False,
        )
        self._answer: httpx.Response | None = None
        self.found: SnapshotFound | None = None
        self.bytes_done = 0
        self.begun = False
        self.body = SnapshotBody()
        self._decode = decoder_of("identity")
        self._torn = False  # within a piece, so that what follows bytes_done can't be decoded

    @property
    def header(self) -> SnapshotHeader | None:
        """The snapshot's first line, once it came."""
        return self.body.header

    async def open(self, at_least: int, snapshot_id: str | None) -> StillMade | SnapshotFound:
        """Ask for a snapshot that stands for ``at_least``, or for the one named: then only for what of it did not come yet.

        SnapshotGone, NoSnapshot, SnapshotForbidden, TicketRefused, SnapshotBroken, and what passes.
        """
        await self._let_go()
        address = await self._client.snapshot_address(
            self._feed, self._listener_id, at_least=at_least, snapshot_id=snapshot_id
        )
        headers = {"Accept-Encoding": ACCEPTED}
        known = self.found if self.found is not None and self.found.snapshot_id == snapshot_id else None
        if known is not None and self.bytes_done and not self.body.ended and not self._torn:
            headers |= {"Range": f"bytes={self.bytes_done}-", "If-Range": known.etag}
        answer = await self._get(address, headers)
        if answer.status_code == 202:
            return await self._still_made(answer)
        if answer.status_code not in {200, 206}:
            raise await self._refusal(answer)
        found = _found_in(answer)
        if answer.status_code == 206:
            self._check_range(answer, found, known)
        else:
            self._begin(found)
        self._answer, self.found = answer, found
        return found

    async def rows(self) -> AsyncGenerator[list[SnapshotRow], None]:
        """Yield the rows of what :meth:`open` found, as they come; ends when the last line was right.

        ServerUnreachable when cut: open it again by its id. SnapshotBroken: none of its rows count.
        """
        answer, found = self._answer, self.found
        if answer is None or found is None:
            raise RuntimeError("no snapshot is open")
        self.begun = True
        try:
            async for data in answer.aiter_raw():  # as it comes: what was received before a cut counts
                for at in range(0, len(data), PIECE_BYTES):
                    piece = data[at : at + PIECE_BYTES]
                    self._torn = True
                    for decoded in self._decode(piece):
                        rows = self.body.take(decoded)
                        self._check_header(found)
                        if rows:
                            yield rows
                    self.bytes_done += len(piece)
                    self._torn = False
        except httpx.HTTPError as error:
            raise ServerUnreachable(f"the snapshot was cut: {str(error) or type(error).__name__}") from None
        finally:
            await self._let_go()
        if found.bytes_total is not None and self.bytes_done < found.bytes_total:
            raise ServerUnreachable(f"the snapshot was cut at {self.bytes_done} of {found.bytes_total} bytes")
        self.body.finish()

    async def close(self) -> None:
        """Close all connections."""
        await self._let_go()
        await self._http.aclose()

    async def _get(self, address: str, headers: dict[str, str]) -> httpx.Response:
        request = self._http.build_request("GET", address, headers=headers)
        try:
            async with asyncio.timeout(IDLE_S_MAX):
                return await self._http.send(request, stream=True)
        except TimeoutError:
            raise ServerUnreachable(f"{_place(address)}: no answer within {IDLE_S_MAX:g} s") from None
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise ServerUnreachable(f"{_place(address)}: {str(error) or type(error).__name__}") from None

    async def _still_made(self, answer: httpx.Response) -> StillMade:
        content = await self._content(answer)
        try:
            rows = int(msgspec.json.decode(content)["rows"])
            seconds = float(answer.headers.get("Retry-After", "1"))
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
            rows, seconds = 0, 1.0
        return StillMade(min(max(seconds, 0.1), PAUSE_S_MAX), rows)

    async def _refusal(self, answer: httpx.Response) -> HeadraceError:
        content = await self._content(answer)
        if answer.status_code < 400 or answer.status_code == 416:
            return SnapshotBroken(
                f"{_place(str(answer.url))}: status {answer.status_code} instead of a snapshot"
            )
        return problem_of(answer.status_code, content, answer.headers)

    async def _content(self, answer: httpx.Response) -> bytes:
        """Read a short answer, decoded; a longer one is cut: it is only shown to people."""
        found = b""
        try:
            decode = decoder_of(answer.headers.get("Content-Encoding", "identity"))
            async for data in answer.aiter_raw():
                for decoded in decode(data):
                    found += decoded
                    if len(found) > SHORT_BYTES_MAX:
                        return found[:SHORT_BYTES_MAX]
        except SnapshotBroken:
            return found  # the status says enough
        except httpx.HTTPError as error:
            raise ServerUnreachable(
                f"{_place(str(answer.url))}: {str(error) or type(error).__name__}"
            ) from None
        finally:
            await answer.aclose()
        return found

    def _begin(self, found: SnapshotFound) -> None:
        self.bytes_done, self.begun, self.body = 0, False, SnapshotBody()
        self._decode, self._torn = decoder_of(found.encoding), False

    def _check_range(self, answer: httpx.Response, found: SnapshotFound, known: SnapshotFound | None) -> None:
        begins = answer.headers.get("Content-Range", "").startswith(f"bytes {self.bytes_done}-")
        same = known is not None and (found.etag, found.encoding) == (known.etag, known.encoding)
        if not (begins and same):
            raise SnapshotBroken("the publisher sent another range than the one that was asked for")

    def _check_header(self, found: SnapshotFound) -> None:
        header = self.body.header
        if header is None:
            return
        said = (header.snapshot_id, header.sequence_id, header.incarnation, header.change_feed_id)
        if said != (found.snapshot_id, found.sequence_id, found.incarnation, self._feed):
            raise SnapshotBroken(f"the snapshot's first line {said} is not what the answer's headers say")

    async def _let_go(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            with suppress(httpx.HTTPError):
                await answer.aclose()


def _found_in(answer: httpx.Response) -> SnapshotFound:
    try:
        total: int | None = None
        if answer.status_code == 206:
            total = int(answer.headers["Content-Range"].rpartition("/")[2])
        elif "Content-Length" in answer.headers:
            total = int(answer.headers["Content-Length"])
        return SnapshotFound(
            answer.headers["Headrace-Snapshot-Id"],
            int(answer.headers["Headrace-Sequence-Id"]),
            answer.headers["Headrace-Incarnation"],
            answer.headers["ETag"],
            answer.headers.get("Content-Encoding", "identity"),
            total,
        )
    except (KeyError, ValueError) as error:
        raise SnapshotBroken(f"{_place(str(answer.url))}: a header is missing or wrong: {error}") from None


def _place(address: str) -> str:
    """Return the address without its query: the ticket in it is nobody's business."""
    return address.partition("?")[0]
