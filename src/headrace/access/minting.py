"""Keys and tokens for development and tests: what an identity provider does in production."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt import InvalidTokenError, PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.access.claims import decode_claims
from headrace.access.key_set import ALGORITHMS, RSA_BITS_MIN
from headrace.errors import ConfigInvalid

PRIVATE_FILE: Final = "private.pem"
PUBLIC_FILE: Final = "jwks.json"

SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_JWS: Final = PyJWS(algorithms=list(ALGORITHMS))
_THUMBPRINTED: Final = frozenset({"crv", "e", "kty", "n", "x", "y"})
"""The members that a thumbprint is made of: all that a public key of these kinds needs."""


def new_key(algorithm: str) -> SigningKey:
    """Return a new private key for one of :data:`~headrace.access.key_set.ALGORITHMS`."""
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN)
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def write_keys(folder: Path, key: SigningKey) -> None:
    """Put ``key`` (readable by its owner alone) and its key set into ``folder``; ConfigInvalid if a key is there already."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private = folder / PRIVATE_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if private.exists():
            raise ConfigInvalid(
                f"{private}: is there already; tokens are made with it",
                hint="Choose another --dir. `headrace token jwks` puts the public halves of several keys into one set.",
            )
        fd = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
        (folder / PUBLIC_FILE).write_bytes(key_set_of([key]))
    except OSError as error:
        raise ConfigInvalid(f"{error.filename or folder}: can't be written: {error.strerror}") from None


def read_key(path: Path) -> SigningKey:
    """Return the private key in ``path``; ConfigInvalid if it can't be read or can't sign tokens."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ConfigInvalid(f"{path}: can't be read: {error.strerror}", hint="Check the path.") from None
    except Exception:  # noqa: BLE001  # what the library raises depends on the kind of key; its message may quote it
        raise ConfigInvalid(
            f"{path}: holds no private key in PEM without a passphrase",
            hint="Make one: headrace token keygen.",
        ) from None
    if not isinstance(key, SigningKey) or algorithm_of(key) is None:
        raise ConfigInvalid(f"{path}: is no key for one of {', '.join(ALGORITHMS)}")
    return key


def algorithm_of(key: SigningKey) -> str | None:
    """Return the algorithm that ``key`` signs with, None if it is too weak or on another curve."""
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256" if key.key_size >= RSA_BITS_MIN else None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return "ES256" if isinstance(key.curve, ec.SECP256R1) else None
    return "EdDSA"


def public_jwk(key: SigningKey) -> dict[str, Any]:
    """Return the public half of ``key`` as a JSON Web Key, named by its thumbprint (RFC 7638)."""
    numbers: Mapping[str, Any]
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        numbers = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        numbers = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    needed: dict[str, Any] = {name: value for name, value in numbers.items() if name in _THUMBPRINTED}
    canonical = json.dumps(needed, separators=(",", ":"), sort_keys=True).encode()
    kid = urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
    return {"kid": kid, "use": "sig", "alg": algorithm_of(key), **needed}


def key_set_of(keys: Iterable[SigningKey]) -> bytes:
    """Return the public halves of ``keys`` as a JSON Web Key Set."""
    return json.dumps({"keys": [public_jwk(key) for key in keys]}, indent=2).encode() + b"\n"


def mint(claims: Mapping[str, Any], key: SigningKey) -> str:
    """Return a token of ``claims`` signed with ``key``; a ``jti`` is added, so that no two are the same."""
    payload = json.dumps({"jti": secrets.token_hex(8), **claims}, separators=(",", ":"), allow_nan=False)
    jwk = public_jwk(key)
    return _JWS.encode(payload.encode(), key, algorithm=str(jwk["alg"]), headers={"kid": jwk["kid"]})


def unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of ``token`` without checking it; ValueError if it is none. Nothing of its signature."""
    try:
        found = PyJWS().decode_complete(re.sub(r"\s", "", token), options={"verify_signature": False})
    except InvalidTokenError:
        raise ValueError("this is no JWT") from None
    return dict(found["header"]), decode_claims(found["payload"])
