"""Segments encrypted to public keys, as age does (https://age-encryption.org/v1): who writes them can't read them.

Recipients are age's own public keys (``age1…``) or SSH's (``ssh-ed25519 …``, ``ssh-rsa …``). Identities are what opens them:
a file as ``age-keygen`` writes it, or an SSH private key without a passphrase. No identity is ever printed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.errors import IdentityNeeded, SegmentCorrupt, SetupMissing, Usage
from headrace.wire.kwal_manifest import Encryption, Manifest

_IDENTITIES_BYTES_MAX: Final = 1 << 20
_NO_KEY: Final = "No matching keys"
"""What pyrage says if a file is encrypted to others; it has one kind of error for everything."""


class Encrypted(NamedTuple):
    """A file encrypted: its bytes as pieces, one behind the other, and what a manifest says of it."""

    pieces: list[bytes]
    told: Encryption


def encrypt(pieces: Iterable[bytes], recipients: Sequence[str]) -> Encrypted:
    """Encrypt the pieces, one behind the other, so that each of the recipients alone can read them.

    Never the same bytes twice. What comes out is held in memory. Usage, naming it, for a recipient that is none;
    SetupMissing.
    """
    keys = [_recipient(one) for one in recipients]
    written = _Gathered()
    _pyrage().encrypt_io(_Pieces(pieces), written, keys)
    size = sum(map(len, written.pieces))
    told = Encryption(recipients=tuple(map(public_key, recipients)), size=size, crc=written.crc)
    return Encrypted(written.pieces, told)


def check_recipients(recipients: Iterable[str]) -> None:
    """Raise Usage, naming it, for a recipient that is none; SetupMissing."""
    for one in recipients:
        _recipient(one)


def public_key(recipient: str) -> str:
    """Return a recipient as manifests name it: an SSH key without its comment."""
    return " ".join(recipient.split()[:2])


def check_encrypted(data: memoryview, manifest: Manifest, where: str) -> None:
    """Raise SegmentCorrupt unless these are the bytes of the encrypted file ``where`` as they were written. Needs no key."""
    told = manifest.encryption
    if told is None:
        raise SegmentCorrupt(f"{where} is encrypted, and its manifest is of one that is not")
    if len(data) != told.size:
        raise SegmentCorrupt(
            f"{where} has {len(data)} bytes; by its manifest it was written with {told.size}"
        )
    if (crc := zlib.crc32(data)) != told.crc:
        raise SegmentCorrupt(
            f"{where} is not what was written: its CRC-32 is {crc}, by its manifest {told.crc}. It is encrypted, so nothing "
            "tells where it is damaged"
        )


def decrypt(data: memoryview, identity: str, where: str) -> memoryview:
    """Return what the encrypted bytes of the file ``where`` say, read with the identities in the file ``identity``.

    IdentityNeeded if none was given, or none opens it; SegmentCorrupt if it is damaged; Usage as :func:`read_identities`.
    """
    if not identity:
        raise IdentityNeeded(f"{where} is encrypted")
    keys = read_identities(identity)
    written = _Filled(len(data))  # age adds some bytes, and takes none away
    try:
        _pyrage().decrypt_io(_Pieces([data]), written, keys)
    except (_pyrage().DecryptError, OSError) as error:
        if _NO_KEY in str(error):
            raise IdentityNeeded(f"{where} is encrypted, and no identity in {identity} opens it") from None
        raise SegmentCorrupt(f"{where} can't be decrypted, it is not what was written: {error}") from None
    return written.data[: written.size].toreadonly()


def read_identities(identity: str) -> list[Any]:
    """Return the identities in a file; Usage, naming file and line and no secret, if it can't be read or has none."""
    try:
        with Path(identity).open("rb") as opened:
            data = opened.read(_IDENTITIES_BYTES_MAX)
    except OSError as error:
        raise Usage(f"the identity file {identity} can't be read: {error.strerror}") from None
    pyrage = _pyrage()
    if data.startswith(b"-----BEGIN "):
        try:
            return [pyrage.ssh.Identity.from_buffer(data)]
        except pyrage.IdentityError:
            raise Usage(
                f"{identity} is no SSH private key that can be used; one with a passphrase can't"
            ) from None
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            found.append(pyrage.x25519.Identity.from_str(text.decode("ascii")))
        except (pyrage.IdentityError, UnicodeDecodeError):
            raise Usage(
                f"{identity}: line {number} is no age identity (AGE-SECRET-KEY-1…)",
                hint="age-keygen -o FILE makes one. A file with a passphrase can't be used.",
            ) from None
    if not found:
        raise Usage(f"{identity} holds no age identity (AGE-SECRET-KEY-1…)")
    return found


def _recipient(text: str) -> Any:
    pyrage = _pyrage()
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text.strip())
    except pyrage.RecipientError:
        said = "an identity, which is secret" if text.upper().startswith("AGE-SECRET") else repr(text[:80])
        raise Usage(
            f"{said} is no recipient", hint="A recipient is a public key: age1…, ssh-ed25519 … or ssh-rsa …"
        ) from None


def _pyrage() -> Any:
    try:
        import pyrage  # noqa: PLC0415  # only who has encrypted segments needs it
    except ImportError as error:
        raise SetupMissing(
            f"encrypted segments need a package that is not installed: {error}",
            hint="Install headrace[backup] here and on all workers.",
        ) from None
    return pyrage


class _Pieces:
    """A file to read of pieces of bytes, without joining them."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._left = iter(pieces)
        self._view = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._view:
            piece = next(self._left, None)
            if piece is None:
                return b""
            self._view = memoryview(piece)
        data, self._view = self._view[:size], self._view[size:]
        return bytes(data)


class _Gathered:
    """A file to write that keeps its bytes as pieces, with the CRC-32 of all."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.crc = 0

    def write(self, data: bytes) -> int:
        self.pieces.append(bytes(data))
        self.crc = zlib.crc32(data, self.crc)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


class _Filled:
    """A file to write into memory taken before."""

    def __init__(self, size_max: int) -> None:
        self.data = np.empty(size_max, np.uint8).data
        self.size = 0

    def write(self, data: bytes) -> int:
        self.data[self.size : self.size + len(data)] = data
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""
