"""The bearer token of a client: from ``--token-file`` or ``HEADRACE_TOKEN``; never printed, and sent to one origin only."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

import httpx

from headrace.access.exposure import is_loopback_name
from headrace.errors import ConfigInvalid, TokenExposed, Usage

TOKEN_BYTES_MAX: Final = 8192
"""Longest token; servers take no longer one."""

_AUTHORIZATION: Final = "Authorization"
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def read_token(file: Path | None) -> str | None:
    """Return the token in ``file``, else that of the environment, else None; ConfigInvalid if the file can't be read."""
    credential = Credential.find(file)
    return credential.token() if credential is not None else None


class Credential:
    """Where a client has its token from. A file is read again when it has changed, so a new token needs no restart."""

    def __init__(
        self, token: str, file: Path | None = None, state: tuple[int, int, int] | None = None
    ) -> None:
        """Hold ``token``, read from ``file`` in that ``state``; :meth:`find` and :meth:`of_file` are the usual ways."""
        self._token = token
        self._file = file
        self._state = state

    @classmethod
    def find(cls, file: Path | None) -> Self | None:
        """Return the credential in ``file``, else that of the environment, else None; ConfigInvalid."""
        if file is not None:
            return cls.of_file(file)
        token = os.environ.get("HEADRACE_TOKEN", "").strip()
        return cls(_checked(token, "HEADRACE_TOKEN")) if token else None

    @classmethod
    def of_file(cls, file: Path) -> Self:
        """Return the credential in ``file``; ConfigInvalid if it can't be read or holds no token."""
        state = _state_of(file)  # before it is read: a file replaced meanwhile is then read once more
        return cls(_read(file), file, state)

    def __repr__(self) -> str:
        """Return where the token is from, never the token."""
        return f"Credential(from {self._file or 'HEADRACE_TOKEN'})"

    @property
    def renews(self) -> bool:
        """True if the token is in a file, which may hold another one later."""
        return self._file is not None

    def token(self) -> str:
        """Return the token as it is now. A file that can't be read just now, or holds none, leaves the one that is known."""
        if self._file is None:
            return self._token
        state = _state_of(self._file)
        if state is None or state == self._state:
            return self._token
        try:
            token = _read(self._file)
        except ConfigInvalid:
            return self._token  # it is being written; its state was not noted, so the next call looks again
        self._token, self._state = token, state
        return token

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that a gRPC call carries; ask :func:`check_may_send` once for its channel."""
        return (("authorization", f"Bearer {self.token()}"),)

    def request_hook(self, server: str) -> Callable[[httpx.Request], Awaitable[None]]:
        """Return a request hook for httpx (``event_hooks={"request": [hook]}``) that authorises calls of ``server`` only.

        It is asked for each hop of a redirect: a request to any other origin goes without the token.
        """
        origin = _origin(_url(server))

        async def authorise(request: httpx.Request) -> None:
            # httpx keeps a header that was set before over some redirects, so it is taken away, not only left out.
            request.headers.pop(_AUTHORIZATION, None)
            if _origin(request.url) == origin:
                request.headers[_AUTHORIZATION] = f"Bearer {self.token()}"

        return authorise


def check_may_send(server: str, *, insecure: bool = False) -> None:
    """Raise TokenExposed if a token sent to ``server`` (a URL) could be read on the way: plain http to another machine."""
    url = _url(server)
    if url.scheme != "https" and not insecure and not is_loopback_name(url.host):
        raise TokenExposed(f"{url.scheme}://{url.host}: the token would go over the network in clear")


def _url(server: str) -> httpx.URL:
    try:
        url = httpx.URL(server)
    except httpx.InvalidURL as error:
        raise Usage(f"{server[:200]!r} is not a server address: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise Usage(f"{server[:200]!r} is not a server address", hint="Write https://HOST:PORT.")
    return url


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return what the URLs of one origin share. Of httpx they come in small letters, without a scheme's own port."""
    return url.scheme, url.host, url.port


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(TOKEN_BYTES_MAX + 2)
    except OSError as error:
        raise ConfigInvalid(
            f"--token-file {file}: can't be read: {error.strerror}", hint="Check the path."
        ) from None
    return _checked(content.decode("latin-1").strip(), f"--token-file {file}")


def _checked(token: str, where: str) -> str:
    """A token is put into a header: a line break in it would be a header of its own."""
    if not _TOKEN.fullmatch(token) or len(token) > TOKEN_BYTES_MAX:
        raise ConfigInvalid(
            f"{where}: holds no token: one line of up to {TOKEN_BYTES_MAX} printable ASCII characters is one"
        )
    return token


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
