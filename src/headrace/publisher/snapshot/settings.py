"""What an agent was told about snapshots, read from its settings and checked."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headrace.access.exposure import is_loopback
from headrace.access.tls import TlsSettings
from headrace.access.tokens import TokenTerms
from headrace.errors import ConfigInvalid

PATH: Final = "/snapshot"
"""Where the snapshot is served."""

KEPT_S_MIN: Final = 3600.0
"""A whole snapshot is kept for an hour at least: a listener that was cut comes back for the rest."""


MAX_AGE_S_MIN: Final = 5.0
"""Least age up to which a whole snapshot is handed out: who waits for one asks each second."""


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """How snapshots are made and served. Times in seconds.

    ``url``: what listeners are sent to, None where the server is not told. ``interval_s``: None for on demand only.
    ``max_age_s``: one that is whole for longer is not handed to who names none.
    ``sql``: the application's query by feed. ``token``: one that opens every snapshot here; ``jwks``: where the keys of the
    API's tokens are.
    """

    listen: Address
    url: str | None = None
    folder: Path = Path("headrace-snapshots")
    interval_s: float | None = None
    max_age_s: float = 600.0
    bytes_max: int = 10 << 30
    sql: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    jwks: str | None = None
    terms: TokenTerms = field(default_factory=TokenTerms)
    tls: TlsSettings | None = None
    insecure: bool = False

    @property
    def kept_s(self) -> float:
        """How long a whole snapshot is kept."""
        return max(KEPT_S_MIN, self.max_age_s)


def parse_listen(text: str) -> Address:
    """Return ``HOST:PORT`` (``[::1]:8480`` for IPv6) as an address; ConfigInvalid."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigInvalid(
            f"snapshot-listen: {text!r} is not an address to listen on", hint="Write 127.0.0.1:8480."
        )
    return Address(host, int(port))


def check_url(text: str) -> str:
    """Return ``text`` if listeners can be sent to it; ConfigInvalid."""
    parts = urlsplit(text)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ConfigInvalid(
            f"snapshot-url: {text[:200]!r} is no address that listeners can be sent to",
            hint=f"Write https://HOST:PORT{PATH}, without anything after it.",
        )
    if parts.path != PATH:
        raise ConfigInvalid(f"snapshot-url: its path must be {PATH}", hint=f"Write https://HOST:PORT{PATH}.")
    return text


def find_addresses(host: str) -> list[str]:
    """Return all numeric addresses of ``host``; ConfigInvalid if it has none."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise ConfigInvalid(f"snapshot-listen: there is no such host: {host[:80]!r}") from None


def check_reach(settings: SnapshotSettings) -> None:
    """Refuse to show rows to a network in clear, unless told to: ConfigInvalid. Needs a look-up of the host's name."""
    if settings.tls is not None or settings.insecure:
        return
    if not all(map(is_loopback, find_addresses(settings.listen.host))):
        raise ConfigInvalid(
            f"snapshot-listen: {settings.listen.host} can be reached from other machines, and there is no TLS",
            hint="Give snapshot-tls-cert and snapshot-tls-key, or snapshot-insecure = true behind a proxy that speaks TLS.",
        )
