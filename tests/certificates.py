"""Certificates for tests: an authority, and what it signs for servers and clients, as PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """The files of a certificate and of its key."""

    cert: Path
    key: Path


class Authority:
    """An authority of its own, with its certificate in ``folder/name.pem``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        builder = _builder(self.name, self.name, self.key, 1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str, *, days: float = 1) -> Pair:
        """Make ``folder/name.crt`` and ``folder/name.key``, for 127.0.0.1 and localhost; they replace older ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self.name, key, days).add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _replace(pair.key, pem)
        _replace(pair.cert, builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return pair


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(path.name + ".tmp")
    draft.write_bytes(content)
    draft.replace(path)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=2))
        .not_valid_after(end)
    )
