"""The options of a server together: a verifier, nobody, or a mistake that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.access.opening import auth_settings, verifying
from headrace.errors import ConfigInvalid, KeysUnavailable, Unauthenticated, Usage
from tests.identity import Issuer


async def test_without_a_key_set_nobody_is_asked() -> None:
    assert auth_settings(None, None, None) is None
    async with verifying(None) as verifier:
        assert verifier is None
    for issuer, audience in (("a", None), (None, "b")):
        with pytest.raises(Usage, match="--auth-jwks"):
            auth_settings(None, issuer, audience)
    with pytest.raises(Usage, match="--auth-jwks"):
        auth_settings("jwks.json", None, None)


async def test_key_set_in_a_file(tmp_path: Path) -> None:
    issuer = Issuer()
    file = tmp_path / "jwks.json"
    file.write_bytes(issuer.key_set())
    async with verifying(auth_settings(file.as_uri(), "dev", "headrace")) as verifier:
        assert verifier is not None
        assert (await verifier.verify(issuer.token(iss="dev", aud="headrace"))).may_administer()
        with pytest.raises(Unauthenticated):
            await verifier.verify(issuer.token())


async def test_file_that_is_no_key_set_stops_the_start(tmp_path: Path) -> None:
    for content in (None, b"", b"{}"):
        file = tmp_path / "jwks.json"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigInvalid, match=r"jwks\.json"):
            async with verifying(auth_settings(file.as_uri(), None, None)):
                raise AssertionError


async def test_issuer_that_is_away_does_not_stop_the_start() -> None:
    async with verifying(auth_settings("http://127.0.0.1:1/jwks", None, None)) as verifier:
        assert verifier is not None
        with pytest.raises(KeysUnavailable):
            await verifier.verify(Issuer().token())
