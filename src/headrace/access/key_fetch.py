"""Where a key set is fetched from: an address over HTTP, or a file. Bounded in time and size; never follows a redirect."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import httpx

from headrace.access.exposure import is_loopback_name
from headrace.errors import Usage

FETCH_S_MAX: Final = 5.0
"""How long one fetch may take as a whole: a request whose key is not known waits for it."""
DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Largest key set that is read; a key takes under 1 KiB."""


class FetchFailed(Exception):
    """The key set could not be had; the message says why, without the address's credentials."""


class KeyFetch(Protocol):
    """How to get the bytes of a key set."""

    place: str
    """Where from, for messages."""

    async def fetch(self) -> bytes:
        """Return the document as it is now; FetchFailed."""

    async def close(self) -> None:
        """Let go of connections."""


class HttpKeyFetch:
    """A key set behind ``http://`` or ``https://``."""

    def __init__(self, url: str) -> None:
        self.place = url
        self._http = httpx.AsyncClient(
            # SSL_CERT_FILE may name an authority of one's own; no other setting of the environment counts.
            verify=httpx.create_ssl_context(trust_env=True),
            timeout=FETCH_S_MAX,
            trust_env=False,
            follow_redirects=False,
            headers={"Accept": "application/json"},
        )

    async def fetch(self) -> bytes:
        """Return the document as it is now; FetchFailed."""
        try:
            async with asyncio.timeout(FETCH_S_MAX), self._http.stream("GET", self.place) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise FetchFailed(f"the status is {answer.status_code}")
                document = bytearray()
                async for part in answer.aiter_bytes():
                    document += part
                    if len(document) > DOCUMENT_BYTES_MAX:
                        raise FetchFailed(f"it takes over {DOCUMENT_BYTES_MAX} bytes")
        except TimeoutError:
            raise FetchFailed(f"no whole answer within {FETCH_S_MAX:g} s") from None
        except httpx.HTTPError as error:
            raise FetchFailed(str(error) or type(error).__name__) from None
        return bytes(document)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class FileKeyFetch:
    """A key set in a local file: for development, and where something else renews the file."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path

    async def fetch(self) -> bytes:
        """Return the file as it is now; FetchFailed."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            # Without O_NONBLOCK, opening a pipe would wait for ever.
            fd = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise FetchFailed("it is no regular file")
                document = file.read(DOCUMENT_BYTES_MAX + 1)
        except OSError as error:
            raise FetchFailed(error.strerror or str(error)) from None
        if len(document) > DOCUMENT_BYTES_MAX:
            raise FetchFailed(f"it takes over {DOCUMENT_BYTES_MAX} bytes")
        return document

    async def close(self) -> None:
        """Do nothing: no file stays open."""


def key_fetch_of(url: str, *, insecure: bool = False) -> KeyFetch:
    """Return how to get the key set at ``url``: ``https://``, ``file:///``, or ``http://`` on this machine.

    ``insecure`` allows ``http://`` elsewhere: whoever stands in between could then put keys of their own. Raises Usage.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL) as error:
        raise Usage(f"--auth-jwks: no address: {error}", hint=_FORMS) from None
    if parts.scheme == "file" and host in {None, "localhost"} and parts.path.startswith("/"):
        return FileKeyFetch(Path(unquote(parts.path)))
    if parts.scheme not in {"http", "https"} or not host:
        raise Usage(f"--auth-jwks: {url[:200]!r} is no address of a key set", hint=_FORMS)
    if parts.username is not None or parts.password is not None:
        raise Usage("--auth-jwks: an address with a password would be logged", hint=_FORMS)
    if parts.scheme == "http" and not insecure and not is_loopback_name(host):
        raise Usage(
            "--auth-jwks: over plain http anybody on the way could put keys of their own",
            hint="Write https://, or give --insecure if the network is yours alone.",
        )
    return HttpKeyFetch(url)


_FORMS: Final = "Write https://HOST/PATH or file:///PATH/jwks.json."
