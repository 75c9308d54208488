"""Our client at a guarded server with TLS: its token, its authority, its certificate, and files that can't be used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.access.asgi import Guard, Receive, Scope, Send
from headrace.access.opening import auth_settings, verifying
from headrace.access.tls import Tls, TlsSettings
from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.tls import client_context
from headrace.errors import ConfigInvalid, Forbidden, ServerUnreachable, Unauthenticated
from tests.certificates import Authority
from tests.identity import Issuer
from tests.integration.access.apps import serving


async def _no_feeds(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b'{"feeds": []}'})


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test begins with files of another one."""
    for name in ("HEADRACE_TLS_CA", "HEADRACE_TLS_CERT", "HEADRACE_TLS_KEY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


async def test_client_with_its_certificate_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = await asyncio.to_thread(Authority, tmp_path)
    server, client = authority.sign("server"), authority.sign("client")
    files = Tls(TlsSettings(cert=server.cert, key=server.key, client_ca=authority.file))
    async with serving(Guard(_no_feeds, None), tls=files.ssl_context) as url:

        async def feeds() -> int:
            async with FeedClient(url) as http:
                return len(await http.feeds())

        with pytest.raises(ServerUnreachable, match="certificate"):
            await feeds()
        monkeypatch.setenv("HEADRACE_TLS_CA", str(authority.file))
        with pytest.raises(ServerUnreachable):
            await feeds()
        monkeypatch.setenv("HEADRACE_TLS_CERT", str(client.cert))
        monkeypatch.setenv("HEADRACE_TLS_KEY", str(client.key))
        assert await feeds() == 0


async def test_client_goes_on_with_the_token_that_its_file_holds_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, issuer = await asyncio.to_thread(Authority, tmp_path), Issuer()
    monkeypatch.setenv("HEADRACE_TLS_CA", str(authority.file))
    server = authority.sign("server")
    files = Tls(TlsSettings(cert=server.cert, key=server.key))
    keys, file, draft = (tmp_path / name for name in ("jwks.json", "token", "draft"))
    keys.write_bytes(issuer.key_set())
    file.write_text(issuer.token())
    async with (
        verifying(auth_settings(keys.as_uri(), None, None)) as verifier,
        serving(Guard(_no_feeds, verifier), tls=files.ssl_context) as url,
        FeedClient(url, token=Credential.of_file(file)) as client,
        FeedClient(url) as stranger,
    ):
        with pytest.raises(Unauthenticated):
            await stranger.feeds()
        assert await client.feeds() == []
        for token, error in ((issuer.token(exp=1), Unauthenticated), (issuer.token(roles=[]), Forbidden)):
            draft.write_text(token)
            draft.replace(file)
            with pytest.raises(error):
                await client.feeds()
        draft.write_text(issuer.token())
        draft.replace(file)
        assert await client.feeds() == []


def test_files_that_cant_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.sign("client"), authority.sign("other")
    text = tmp_path / "text"
    text.write_text("nothing of the kind")
    for ca, cert, key, said in (
        (tmp_path / "none", None, None, "HEADRACE_TLS_CA .*none"),
        (text, None, None, "HEADRACE_TLS_CA .*text"),
        (None, tmp_path / "none", pair.key, "HEADRACE_TLS_CERT .*none"),
        (None, text, pair.key, "HEADRACE_TLS_CERT .*text"),
        (None, pair.cert, other.key, "HEADRACE_TLS_CERT"),
        (None, None, pair.key, "HEADRACE_TLS_KEY is set"),
    ):
        for name, value in (("HEADRACE_TLS_CA", ca), ("HEADRACE_TLS_CERT", cert), ("HEADRACE_TLS_KEY", key)):
            monkeypatch.setenv(name, "" if value is None else str(value))
        with pytest.raises(ConfigInvalid, match=said):
            client_context()
