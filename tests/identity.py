"""An identity provider for tests: real keys, the key set as it would be served, and tokens of any claims."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

from headrace.access.minting import SigningKey, key_set_of, mint, new_key, public_jwk


class Issuer:
    """Signs with its newest key, and serves the public halves of all that it has not withdrawn."""

    def __init__(self, algorithm: str = "EdDSA") -> None:
        self.keys: list[SigningKey] = []
        self.rotate(algorithm)

    def rotate(self, algorithm: str = "EdDSA") -> None:
        """Begin to sign with a new key; the older ones stay in the set."""
        self.keys.append(new_key(algorithm))

    def withdraw(self) -> None:
        """Take all keys but the newest out of the set."""
        del self.keys[:-1]

    @property
    def key(self) -> SigningKey:
        """The key that signs."""
        return self.keys[-1]

    @property
    def kid(self) -> str:
        """Its name in the set."""
        return str(public_jwk(self.key)["kid"])

    def key_set(self) -> bytes:
        """The document behind the JWKS address."""
        return key_set_of(self.keys)

    def token(self, **claims: Any) -> str:
        """Return a token of an admin, good for an hour, with ``claims`` put over that; None leaves a claim out."""
        now = int(time.time())
        given = {"sub": "ann", "iat": now, "exp": now + 3600, "roles": ["admin"], **claims}
        return mint({name: value for name, value in given.items() if value is not None}, self.key)


def encoded(part: dict[str, Any] | bytes) -> str:
    """Return one part of a JWT in base64url: for tokens that no library would make."""
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
