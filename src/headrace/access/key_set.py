"""JSON Web Key Sets (RFC 7517): the public keys that tokens are checked with. Pure: bytes in, keys out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
"""The only signatures that are taken. A shared secret (HS256) would let every server that checks tokens make them."""
KEYS_MAX: Final = 100
"""Most keys of a set."""
RSA_BITS_MIN: Final = 2048
"""RFC 7518 §3.3."""

_KINDS: Final = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
_PRIVATE: Final = frozenset({"d", "p", "q"})


class VerificationKey(NamedTuple):
    """A public key, the one algorithm that it is for, and its name in the set."""

    kid: str | None
    algorithm: str
    key: PyJWK


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one document. Equal sets hold the same keys. ``unfit``: why others of the document are left out."""

    keys: tuple[VerificationKey, ...] = field(compare=False)
    thumbprints: frozenset[str]
    unfit: tuple[str, ...] = field(compare=False, default=())

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key of this name for ``algorithm``; a token that names none gets the only one there is, or none."""
        fitting = [
            found.key
            for found in self.keys
            if found.algorithm == algorithm and (kid is None or found.kid == kid)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def names(self, kid: str | None) -> bool:
        """Return whether a newer set could not help a token that names ``kid``: it is here, or the token names none."""
        return kid is None or any(found.kid == kid for found in self.keys)


def parse_key_set(document: bytes) -> KeySet:
    """Return the keys of ``document`` that tokens may be signed with; others are left out. ValueError if it is no set."""
    try:
        found = json.loads(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is no JSON object with a list of keys")
    if len(listed) > KEYS_MAX:
        raise ValueError(f"it has {len(listed)} keys; at most {KEYS_MAX} are taken")
    keys: list[VerificationKey] = []
    thumbprints: list[str] = []
    unfit: list[str] = []
    for place, jwk in enumerate(listed):
        try:
            key = _key(jwk)
        except ValueError as error:
            unfit.append(f"key {place}: {error}")
            continue
        keys.append(key)
        thumbprints.append(json.dumps(jwk, sort_keys=True))
    return KeySet(tuple(keys), frozenset(thumbprints), tuple(unfit))


def _key(jwk: Any) -> VerificationKey:
    if not isinstance(jwk, dict):
        raise ValueError("it is no JSON object")
    kid = jwk.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("its kid is no text")
    if jwk.get("use") not in (None, "sig"):
        raise ValueError("it is not for signatures")
    algorithm = _algorithm(jwk)
    if jwk.get("alg") not in (None, algorithm):
        raise ValueError(f"it is not for one of {', '.join(ALGORITHMS)}")
    if _PRIVATE & jwk.keys():
        raise ValueError(
            "it is a private key: whoever could read it can make tokens, so none of its tokens is taken"
        )
    try:
        key = PyJWK(jwk, algorithm)
    except (PyJWTError, ValueError, TypeError):
        raise ValueError("its numbers are no key") from None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < RSA_BITS_MIN:
        raise ValueError(f"it has fewer than {RSA_BITS_MIN} bits")
    return VerificationKey(kid, algorithm, key)


def _algorithm(jwk: Mapping[str, Any]) -> str:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        raise ValueError("it has no kind")
    algorithm = _KINDS.get((kind, curve))
    if algorithm is None:
        raise ValueError(f"it is not for one of {', '.join(ALGORITHMS)}")
    return algorithm
