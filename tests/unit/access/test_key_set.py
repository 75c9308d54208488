"""Key sets: which keys are taken, which are left out, and that no document makes the parser fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.access.key_set import ALGORITHMS, KEYS_MAX, parse_key_set
from headrace.access.minting import new_key, public_jwk


def _set(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


GOOD = {algorithm: public_jwk(new_key(algorithm)) for algorithm in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_key_is_found_by_its_name_for_its_algorithm_only(algorithm: str) -> None:
    keys = parse_key_set(_set(*GOOD.values()))
    assert not keys.unfit
    kid = GOOD[algorithm]["kid"]
    assert keys.find(kid, algorithm) is not None
    assert all(keys.find(kid, other) is None for other in ALGORITHMS if other != algorithm)
    assert keys.find("other", algorithm) is None
    assert keys.find(kid, "HS256") is None


def test_token_without_kid_gets_the_only_key_or_none() -> None:
    alone = parse_key_set(_set(GOOD["EdDSA"]))
    assert alone.find(None, "EdDSA") is not None
    two = parse_key_set(_set(GOOD["EdDSA"], public_jwk(new_key("EdDSA"))))
    assert two.find(None, "EdDSA") is None


def test_two_keys_of_one_name_are_none() -> None:
    twin = {**public_jwk(new_key("EdDSA")), "kid": GOOD["EdDSA"]["kid"]}
    assert parse_key_set(_set(GOOD["EdDSA"], twin)).find(twin["kid"], "EdDSA") is None


def _without(jwk: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in jwk.items() if name not in names}


UNFIT = {
    "shared secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "s"},
    "secret beside a curve": {"kty": "oct", "crv": "P-256", "k": "c2VjcmV0"},
    "for encryption": {**GOOD["RS256"], "use": "enc"},
    "for another algorithm": {**GOOD["RS256"], "alg": "RS512"},
    "for HS256": {**GOOD["RS256"], "alg": "HS256"},
    "for none": {**GOOD["RS256"], "alg": "none"},
    "other curve": ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key(), as_dict=True),
    "Ed448": OKPAlgorithm.to_jwk(ed448.Ed448PrivateKey.generate().public_key(), as_dict=True),
    "short": RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True),
    "private": OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate(), as_dict=True),
    "point off the curve": {**GOOD["ES256"], "x": GOOD["ES256"]["y"]},
    "no numbers": _without(GOOD["RS256"], "n"),
    "number no text": {**GOOD["EdDSA"], "x": 7},
    "not base64": {**GOOD["EdDSA"], "x": "!"},
    "kid no text": {**GOOD["EdDSA"], "kid": 7},
    "no kind": _without(GOOD["EdDSA"], "kty"),
    "kind no text": {**GOOD["EdDSA"], "kty": ["OKP"]},
    "no object": "key",
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_key_is_left_out_and_the_others_are_taken(name: str) -> None:
    keys = parse_key_set(_set(UNFIT[name], GOOD["EdDSA"]))
    assert [key.kid for key in keys.keys] == [GOOD["EdDSA"]["kid"]]
    (reason,) = keys.unfit
    assert reason.startswith("key 0: ")
    jwk = UNFIT[name]
    if isinstance(jwk, dict):
        secrets = [str(jwk[member]) for member in ("d", "k") if member in jwk]
        assert not any(secret in reason for secret in secrets)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"7", b"{}", b'{"keys":{}}', b"\xff", b"[" * 100_000, _set(*[{}] * (KEYS_MAX + 1))],
)
def test_what_is_no_set_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each in its own words
        parse_key_set(document)


def test_sets_are_equal_if_their_keys_are() -> None:
    one, other = GOOD["EdDSA"], GOOD["ES256"]
    assert parse_key_set(_set(one, other)) == parse_key_set(_set(other, one, "nonsense"))
    assert parse_key_set(_set(one)) != parse_key_set(_set(one, other))
    assert parse_key_set(_set(one)) != parse_key_set(_set({**one, "kid": "renamed"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "AQAB", "sig"])
        for name in ("kty", "crv", "n", "e", "x", "y", "d", "k", "use", "alg", "kid")
    },
)


@given(st.lists(MEMBERS | JSON, max_size=3))
def test_no_document_makes_the_parser_fail(keys: list[Any]) -> None:
    parse_key_set(_set(*keys))


@given(st.sampled_from(ALGORITHMS), st.sampled_from(["n", "e", "x", "y"]), JSON)
def test_no_number_makes_the_parser_fail(algorithm: str, member: str, value: Any) -> None:
    parse_key_set(_set({**GOOD[algorithm], member: value}))
