"""Tokens: what is accepted, what is refused and why, and what is remembered."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWS

from headrace.access import tokens
from headrace.access.grants import Grant, Role
from headrace.access.key_fetch import FileKeyFetch
from headrace.access.key_source import KeySource, KeyTerms
from headrace.access.minting import mint, new_key, public_jwk
from headrace.access.tokens import LEEWAY_S, TOKEN_CHARS_MAX, TokenTerms, TokenVerifier
from headrace.errors import KeysUnavailable, Unauthenticated
from headrace.testing.clock import ManualClock
from tests.identity import Issuer, encoded

NOW = 1_760_000_000
"""Where a :class:`ManualClock` stands, in seconds."""


@asynccontextmanager
async def verifying(
    folder: Path, issuer: Issuer, terms: TokenTerms | None = None, keys: KeyTerms | None = None
) -> AsyncIterator[tuple[TokenVerifier, ManualClock]]:
    """A verifier over the issuer's keys in a file, at a clock that stands still."""
    clock = ManualClock()
    file = folder / "jwks.json"
    file.write_bytes(issuer.key_set())
    async with KeySource(FileKeyFetch(file), terms=keys, clock=clock) as source:
        yield TokenVerifier(source, terms, clock=clock), clock


def token(issuer: Issuer, **claims: Any) -> str:
    """A token that is good for a minute at the clock's time."""
    return issuer.token(**{"iat": NOW, "exp": NOW + 60, **claims})


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_token_becomes_its_grant(tmp_path: Path, algorithm: str) -> None:
    issuer = Issuer(algorithm)
    async with verifying(tmp_path, issuer) as (verifier, _):
        given = token(issuer, sub="tcns", roles=["listener"], feeds=["vmapi::*"], tenant="t1")
        assert verifier.recall(given) is None
        grant = await verifier.verify(given)
        assert grant == Grant("tcns", frozenset({Role.LISTENER}), ("vmapi::*",), "t1", NOW + 60)
        assert verifier.recall(given) == grant


async def refused(verifier: TokenVerifier, text: str) -> str:
    """Assert that ``text`` is refused, and that nothing of it is said; return what is said."""
    with pytest.raises(Unauthenticated) as error:
        await verifier.verify(text)
    assert verifier.recall(text) is None
    for part in text.split("."):
        assert len(part) < 8 or part not in f"{error.value.detail}{error.value.members}"
    return error.value.detail


async def test_unsigned_tokens_are_refused(tmp_path: Path) -> None:
    issuer = Issuer()
    claims = {"sub": "ann", "exp": NOW + 60, "roles": ["admin"]}
    signature = token(issuer).rsplit(".", 1)[1]
    async with verifying(tmp_path, issuer) as (verifier, _):
        for name in ("none", "None", "NONE", "", None, 7, ["EdDSA"]):
            header = {"alg": name, "kid": issuer.kid}
            for last in ("", signature):
                await refused(verifier, f"{encoded(header)}.{encoded(claims)}.{last}")


async def test_public_key_used_as_a_shared_secret_is_refused(tmp_path: Path) -> None:
    issuer = Issuer("RS256")
    claims = json.dumps({"sub": "ann", "exp": NOW + 60, "roles": ["admin"]}).encode()
    public = issuer.key.public_key()
    secrets = [
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        issuer.key_set(),
        json.dumps(public_jwk(issuer.key)).encode(),
    ]
    async with verifying(tmp_path, issuer) as (verifier, _):
        for secret in secrets:
            for name in ("sha256", "sha384", "sha512"):
                header = {"alg": f"HS{name[-3:]}", "kid": issuer.kid}
                signed = f"{encoded(header)}.{encoded(claims)}"
                forged = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), name))}"
                assert "not signed with one of" in await refused(verifier, forged)


async def test_algorithm_is_the_keys_not_the_headers(tmp_path: Path) -> None:
    issuer, other = Issuer("ES256"), new_key("EdDSA")
    async with verifying(tmp_path, issuer) as (verifier, _):
        header, claims, signature = mint({"sub": "a", "exp": NOW + 60}, other).split(".")
        lying = encoded({"alg": "EdDSA", "kid": issuer.kid})
        await refused(verifier, f"{lying}.{claims}.{signature}")
        lying = encoded({"alg": "ES256", "kid": issuer.kid})
        await refused(verifier, f"{lying}.{claims}.{signature}")
        await refused(verifier, f"{header}.{claims}.{signature}")


async def test_key_that_a_token_brings_along_is_not_believed(tmp_path: Path) -> None:
    issuer, own = Issuer(), new_key("EdDSA")
    headers = {"jwk": public_jwk(own), "jku": "https://example.com/jwks.json", "kid": issuer.kid}
    forged = PyJWS().encode(
        json.dumps({"sub": "a", "exp": NOW + 60, "roles": ["admin"]}).encode(),
        own,
        algorithm="EdDSA",
        headers=headers,
    )
    async with verifying(tmp_path, issuer) as (verifier, _):
        assert "signature" in await refused(verifier, forged)


async def test_changed_claims_are_refused(tmp_path: Path) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, _):
        header, claims, signature = token(issuer, roles=["listener"]).split(".")
        await refused(verifier, f"{header}.{encoded({'roles': ['admin'], 'exp': NOW + 60})}.{signature}")
        await verifier.verify(f"{header}.{claims}.{signature}")


async def test_critical_extensions_are_refused(tmp_path: Path) -> None:
    issuer = Issuer()
    payload = json.dumps({"sub": "a", "exp": NOW + 60, "roles": ["admin"]}).encode()
    async with verifying(tmp_path, issuer) as (verifier, _):
        headers = {"kid": issuer.kid, "crit": ["x"], "x": 1}
        await refused(verifier, PyJWS().encode(payload, issuer.key, algorithm="EdDSA", headers=headers))


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": None}, "does not say when"),
        ({"exp": NOW}, "expired"),
        ({"exp": NOW - 1}, "expired"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": True}, "exp"),
        ({"nbf": NOW + LEEWAY_S + 1}, "not valid yet"),
        ({"iat": NOW + LEEWAY_S + 1}, "not valid yet"),
        ({"nbf": "x"}, "nbf"),
        ({"roles": "admin"}, "roles"),
        ({"feeds": [7]}, "feeds"),
        ({"sub": 7}, "sub"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other"]}, "audience"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_claims_that_are_refused(tmp_path: Path, claims: dict[str, Any], said: str) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, _):
        assert said in await refused(verifier, token(issuer, **claims))


async def test_issuer_and_audience_are_compared(tmp_path: Path) -> None:
    issuer = Issuer()
    terms = TokenTerms(issuer="https://id.example", audience="headrace")
    async with verifying(tmp_path, issuer, terms) as (verifier, _):
        for audience in ("headrace", ["x", "headrace"]):
            await verifier.verify(token(issuer, iss="https://id.example", aud=audience))
        for given in (
            {"aud": "headrace"},
            {"aud": "headrace", "iss": "https://id.example/"},
            {"iss": "https://id.example"},
            {"iss": "https://id.example", "aud": "headrace2"},
            {"iss": "https://id.example", "aud": []},
            {"iss": "https://id.example", "aud": {"headrace": 1}},
            {"iss": ["https://id.example"], "aud": "headrace"},
        ):
            await refused(verifier, token(issuer, **given))


async def test_clock_of_the_issuer_may_be_ahead(tmp_path: Path) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, _):
        await verifier.verify(token(issuer, iat=NOW + LEEWAY_S, nbf=NOW + LEEWAY_S, exp=NOW + 3600))


async def test_remembered_token_ends_at_exp(tmp_path: Path) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, clock):
        given = token(issuer)
        await verifier.verify(given)
        clock.ms = (NOW + 60) * 1000 - 1
        assert verifier.recall(given) is not None
        clock.ms += 1
        assert verifier.recall(given) is None
        assert "expired" in await refused(verifier, given)


async def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_MAX", 3)
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, _):
        given = [token(issuer, sub=f"s{number}") for number in range(5)]
        for one in given[:3]:
            await verifier.verify(one)
        assert verifier.recall(given[0]) is not None
        for one in given[3:]:
            await verifier.verify(one)
        known = [number for number, one in enumerate(given) if verifier.recall(one) is not None]
        assert known == [0, 3, 4], "the token used last stays"


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "ä.ö.ü", "\ud800.a.b", "x" * 9000]
)
async def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    async with verifying(tmp_path, Issuer()) as (verifier, _):
        await refused(verifier, text)


async def test_overlong_token_is_refused(tmp_path: Path) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer) as (verifier, _):
        await refused(verifier, token(issuer, x="y" * TOKEN_CHARS_MAX))


async def test_keys_that_got_too_old_let_nobody_in(tmp_path: Path) -> None:
    issuer = Issuer()
    async with verifying(tmp_path, issuer, keys=KeyTerms(age_s_max=100)) as (verifier, clock):
        given = token(issuer)
        await verifier.verify(given)
        clock.seconds = 100.0
        assert verifier.recall(given) is not None
        clock.seconds = 100.1
        with pytest.raises(KeysUnavailable):
            verifier.recall(given)
        with pytest.raises(KeysUnavailable):
            await verifier.verify(token(issuer))
