"""Age identities for tests, as ``age-keygen`` and ``ssh-keygen`` write them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyrage
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

COMMENT: Final = "backup@example"


def age_identity(path: Path) -> str:
    """Write a new identity to ``path`` and return its recipient."""
    identity = pyrage.x25519.Identity.generate()
    recipient = str(identity.to_public())
    path.write_text(f"# created: 2026-11-22T20:00:00Z\n# public key: {recipient}\n{identity}\n")
    return recipient


def ssh_identity(path: Path, *, rsa: bool = False) -> str:
    """Write a new SSH key to ``path`` and return its public key, with a comment."""
    key: Ed25519PrivateKey | RSAPrivateKey
    key = generate_private_key(65_537, 2048) if rsa else Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{public.decode()} {COMMENT}\n"
