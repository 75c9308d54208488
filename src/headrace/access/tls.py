"""TLS for a server: ``--tls-cert``, ``--tls-key`` and ``--tls-client-ca``, checked, and read again when the files change.

HTTP gets an ``ssl.SSLContext`` here, gRPC its credentials from ``grpc_tls``; both look at the files when a client connects.
"""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from headrace.errors import ConfigInvalid
from headrace.runtime.logs import get_logger

logger = get_logger("access")

FILE_BYTES_MAX: Final = 1 << 20
"""Largest file that is read: a chain of certificates takes a few KB."""
LOOK_S_MIN: Final = 1.0
"""The least pause between two looks at the files, however many clients connect."""


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The files, in PEM. ``client_ca``: only clients with a certificate of one of these authorities are served."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class TlsFiles(NamedTuple):
    """What stood in the files when they were read together, checked."""

    cert: bytes
    key: bytes
    client_ca: bytes | None
    ends_at: datetime

    def __repr__(self) -> str:
        """Return what holds no secret."""
        return f"TlsFiles(ends_at={self.ends_at.isoformat()})"


def tls_settings(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsSettings | None:
    """Return what the three options mean together, None if none is given; ConfigInvalid if one of them is missing."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise ConfigInvalid(
            f"{missing} is missing", hint="TLS needs --tls-cert and --tls-key; --tls-client-ca may be added."
        )
    return TlsSettings(cert=cert, key=key, client_ca=client_ca)


def load_tls(settings: TlsSettings, *, now: datetime | None = None) -> TlsFiles:
    """Read and check the files; ConfigInvalid, naming the option, the file and what is wrong with it.

    The certificates must be readable, the first one not expired, and the key its own and without a passphrase.
    """
    cert = _read(settings.cert, "--tls-cert")
    key = _read(settings.key, "--tls-key")
    client_ca = _read(settings.client_ca, "--tls-client-ca") if settings.client_ca is not None else None
    own = _certificates(cert, f"--tls-cert {settings.cert}")[0]
    if _public_key(key, settings) != own.public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    ):
        raise ConfigInvalid(
            f"--tls-key {settings.key}: is not the key of the first certificate in {settings.cert}",
            hint="Give the two files that belong together; the server's own certificate stands first.",
        )
    if own.not_valid_after_utc <= (now or datetime.now(UTC)):
        raise ConfigInvalid(
            f"--tls-cert {settings.cert}: expired on {own.not_valid_after_utc.isoformat()}",
            hint="Renew the certificate.",
        )
    if client_ca is not None:
        _certificates(client_ca, f"--tls-client-ca {settings.client_ca}")
    return TlsFiles(cert, key, client_ca, own.not_valid_after_utc)


class Tls:
    """The certificates of a running server. Files that are wrong when they are read again change nothing, loudly."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files; ConfigInvalid."""
        self.settings = settings
        self._state = _state_of(settings)
        self._looked_at = time.monotonic()
        self.files = load_tls(settings)
        """What is in use."""
        self._context = _context_of(settings, self.files)

    def refresh(self) -> bool:
        """Read the files again if they have changed, at most once a second; True if others are in use now."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S_MIN:
            return False
        self._looked_at = now
        state = _state_of(self.settings)
        if state == self._state:
            return False
        self._state = state
        try:
            files = load_tls(self.settings)
            context = _context_of(self.settings, files)
        except ConfigInvalid as error:
            logger.error("the changed TLS files are not used", reason=error.detail)
            return False
        self.files, self._context = files, context
        logger.info("TLS files were read again", certificate_ends_at=files.ends_at.isoformat())
        return True

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for a server (uvicorn's ``ssl_context_factory``): each handshake takes the newest files."""
        first = _context_of(self.settings, self.files)

        def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            self.refresh()
            connection.context = self._context

        # Called for each handshake, also where the client names no host.
        first.sni_callback = choose
        return first


def _read(path: Path, option: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigInvalid(
            f"{option} {path}: can't be read: {error.strerror}", hint="Check the path."
        ) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigInvalid(f"{option} {path}: is no PEM file: it takes over {FILE_BYTES_MAX} bytes")
    return content


def _certificates(content: bytes, where: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ConfigInvalid(f"{where}: holds no certificate in PEM: {error}") from None


def _public_key(content: bytes, settings: TlsSettings) -> bytes:
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise ConfigInvalid(
            f"--tls-key {settings.key}: has a passphrase",
            hint="Give a key without one, in a file that only the server's user can read.",
        ) from None
    except Exception:  # noqa: BLE001  # what the library raises depends on the kind of key; its message may quote it
        raise ConfigInvalid(f"--tls-key {settings.key}: holds no private key in PEM") from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _context_of(settings: TlsSettings, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.cert, settings.key)
        if files.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=files.client_ca.decode("ascii", "replace"))
            # A session that is taken up again would not be asked for its certificate under the newer authorities.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"--tls-cert {settings.cert}: can't be used: {error}") from None
    return context


def _state_of(settings: TlsSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes whenever a file is written or replaced, links included."""
    paths = (settings.cert, settings.key, *((settings.client_ca,) if settings.client_ca is not None else ()))
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
