"""A publisher's snapshot resource and a server's hydration calls, as small real HTTP servers that keep to the contract.

``async with publishing(SnapshotPublisher(...)) as publisher, fronting(Front(real_url, publisher)) as front``: the front
answers the hydration lease and ``GET /feeds/{id}/snapshot``, and passes everything else to the real server.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import google_crc32c
import httpx
import zstandard

from headrace.client.tls import NO_TLS
from tests.unit.client.servers import listening, read_request

Request = tuple[str, dict[str, str]]


def body_of(
    rows: list[dict[str, Any]], sequence_id: int, *, snapshot_id: str, feed: str, incarnation: str
) -> bytes:
    """A snapshot's whole body."""
    header = {
        "headrace-snapshot": 1,
        "snapshot-id": snapshot_id,
        "change-feed-id": feed,
        "incarnation": incarnation,
        "sequence-id": sequence_id,
        "taken-at": "2026-11-22T00:00:00.000Z",
    }
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *rows))
    count = sum("control" not in row for row in rows)
    end = {"end": {"rows": count, "crc32c": f"{int(google_crc32c.value(text)):08x}"}}
    return text + json.dumps(end, separators=(",", ":")).encode() + b"\n"


@dataclass
class SnapshotPublisher:
    """Serves the snapshot that ``take`` was told of. Misbehaves once for each thing that is put into its lists."""

    feed: str
    incarnation: str
    encodings: tuple[str, ...] = ("zstd", "gzip", "identity")
    snapshot_id: str = ""
    sequence_id: int = 0
    body: bytes = b""
    pauses: int = 0
    """So many answers are 202 first."""
    cuts: list[int] = field(default_factory=list)
    """Each answer is cut after so many bytes of its body."""
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Each answer is this status with this code."""
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def take(self, snapshot_id: str, sequence_id: int, rows: list[dict[str, Any]]) -> None:
        """From now on there is this snapshot, and no other."""
        self.snapshot_id, self.sequence_id = snapshot_id, sequence_id
        self.body = body_of(
            rows, sequence_id, snapshot_id=snapshot_id, feed=self.feed, incarnation=self.incarnation
        )

    def encoded(self, accepted: str) -> tuple[str, bytes]:
        """The encoding that is used for this Accept-Encoding, and the bytes."""
        encoding = next((name for name in self.encodings if name in accepted), "identity")
        if encoding == "zstd":
            return encoding, zstandard.ZstdCompressor().compress(self.body)
        if encoding == "gzip":
            gzip = zlib.compressobj(wbits=31)
            return encoding, gzip.compress(self.body) + gzip.flush()
        return "identity", self.body

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while True:
            first, headers, _ = await read_request(reader)
            self.requests.append((first, headers))
            query = parse_qs(urlsplit(first.split()[1]).query)
            wanted = query.get("snapshot-id", [self.snapshot_id])[0]
            if self.refusals:
                status, code = self.refusals.pop(0)
                writer.write(problem(status, code))
            elif wanted != self.snapshot_id:
                writer.write(problem(410, "snapshot-gone"))
            elif self.pauses:
                self.pauses -= 1
                writer.write(answer(202, {"Retry-After": "0.1"}, b'{"state":"being-made","rows":5}'))
            else:
                await self._send(headers, writer)
            await writer.drain()

    async def _send(self, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        encoding, data = self.encoded(headers.get("accept-encoding", ""))
        etag = f'"{self.snapshot_id}{"" if encoding == "identity" else "-" + encoding}"'
        given = {
            "Headrace-Snapshot-Id": self.snapshot_id,
            "Headrace-Sequence-Id": str(self.sequence_id),
            "Headrace-Incarnation": self.incarnation,
            "ETag": etag,
            "Content-Encoding": encoding,
        }
        begin, status = 0, 200
        if "range" in headers and headers.get("if-range") == etag:
            begin, status = int(headers["range"].removeprefix("bytes=").rstrip("-")), 206
            given["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        part = data[begin:]
        cut = self.cuts.pop(0) if self.cuts else len(part)
        given["Content-Length"] = str(len(part))
        writer.write(answer(status, given, b"") + part[:cut])
        await writer.drain()
        if cut < len(part):
            raise ConnectionError("cut here, as asked")


@dataclass
class Front:
    """The hydration calls of the contract; ``oldest``: what is below is not retained any more."""

    server: str
    publisher: SnapshotPublisher | None
    oldest: int = 1
    requests: list[Request] = field(default_factory=list)
    leases: list[dict[str, Any] | None] = field(default_factory=list)
    """The bodies of the lease's calls, in order; None for its end."""
    url: str = ""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        async with httpx.AsyncClient(trust_env=False, timeout=70, verify=NO_TLS) as real:
            while True:
                first, headers, body = await read_request(reader)
                self.requests.append((first, headers))
                method, target, _ = first.split()
                parts = urlsplit(target)
                query = parse_qs(parts.query)
                first_wanted = int(query.get("beg-sequence-id", [0])[0] or 0) or (
                    int(query["after-sequence-id"][0]) + 1 if "after-sequence-id" in query else self.oldest
                )
                if parts.path.endswith("/hydration"):
                    writer.write(await self._lease(real, method, parts.path, body))
                elif parts.path.endswith("/snapshot"):
                    writer.write(self._snapshot(parts.path, parts.query))
                elif first_wanted < self.oldest:
                    writer.write(problem(410, "sequence-not-available"))
                else:
                    kept = {name: value for name, value in headers.items() if name != "host"}
                    passed = await real.request(method, self.server + target, content=body, headers=kept)
                    writer.write(
                        answer(passed.status_code, {"Content-Type": "application/json"}, passed.content)
                    )
                await writer.drain()

    async def _lease(self, real: httpx.AsyncClient, method: str, path: str, body: bytes) -> bytes:
        if method == "DELETE":
            self.leases.append(None)
            return answer(204, {}, b"")
        taken = json.loads(body)
        self.leases.append(taken)
        _, _, listener_id, _, feed, _ = path.split("/")
        view = (await real.get(f"{self.server}/feeds/{feed}")).json()
        document = {
            "change-feed-id": unquote(feed),
            "listener-id": listener_id,
            "incarnation": view["incarnation"],
            "oldest-sequence-id": self.oldest,
            "head-sequence-id": view["head-sequence-id"],
            "holds-from-sequence-id": taken.get("sequence-id", self.oldest - 1) + 1,
            "expires-at": "2036-01-01T00:00:00.000Z",
        }
        return answer(200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    def _snapshot(self, path: str, query: str) -> bytes:
        if self.publisher is None:
            return problem(404, "no-snapshot")
        feed = path.split("/")[2]
        location = (
            f"{self.publisher.url}/snapshot?change-feed-id={quote(unquote(feed), safe='')}&{query}&ticket=T"
        )
        return answer(307, {"Location": location}, b"")


def answer(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """A whole HTTP answer."""
    head = ({"Content-Length": str(len(body))} if status != 204 else {}) | headers
    lines = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def problem(status: int, code: str) -> bytes:
    """A problem document as an answer."""
    document = {"code": code, "title": code, "status": status, "detail": "as the test asks", "hint": "none"}
    return answer(status, {"Content-Type": "application/problem+json"}, json.dumps(document).encode())


@asynccontextmanager
async def publishing(publisher: SnapshotPublisher) -> AsyncIterator[SnapshotPublisher]:
    """Run it."""
    async with listening(publisher.converse) as publisher.url:
        yield publisher


@asynccontextmanager
async def fronting(front: Front) -> AsyncIterator[Front]:
    """Run it."""
    async with listening(front.converse) as front.url:
        yield front
