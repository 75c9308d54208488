"""The guard before a real HTTP server: who gets through, what the others are told, and over which TLS."""

from __future__ import annotations

import asyncio
import inspect
import random
import ssl
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.access import tls
from headrace.access.asgi import Guard
from headrace.access.key_fetch import FileKeyFetch
from headrace.access.key_source import KeySource
from headrace.access.tls import Tls, TlsSettings
from headrace.access.tokens import TokenVerifier
from headrace.errors import KeysUnavailable
from tests.certificates import Authority
from tests.identity import Issuer
from tests.integration.access.apps import serving, whoami
from tests.scale import scaled
from tests.servers import code_of
from tests.waiting import async_wait_until

LISTENER: dict[str, Any] = {"roles": ["listener"], "feeds": ["vmapi::*"]}


@pytest.fixture
def issuer() -> Issuer:
    """Who signs the tokens."""
    return Issuer()


@asynccontextmanager
async def guarded(folder: Path, issuer: Issuer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a guarded server."""
    file = folder / "jwks.json"
    file.write_bytes(issuer.key_set())
    async with (
        KeySource(FileKeyFetch(file)) as keys,
        serving(Guard(whoami, TokenVerifier(keys))) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as http,
    ):
        yield http


def bearer(token: str) -> dict[str, str]:
    """The header that carries ``token``."""
    return {"Authorization": f"Bearer {token}"}


async def test_token_lets_its_bearer_through(tmp_path: Path, issuer: Issuer) -> None:
    async with guarded(tmp_path, issuer) as http:
        headers = bearer(issuer.token(sub="tcns", **LISTENER))
        for _ in range(2):  # checked, then remembered
            answer = await http.get("/feeds", headers=headers)
            assert (answer.status_code, answer.text) == (200, "tcns")


async def test_without_a_good_token_nobody_gets_through(tmp_path: Path, issuer: Issuer) -> None:
    stranger = Issuer().token()
    async with guarded(tmp_path, issuer) as http:
        answer = await http.get("/feeds")
        assert code_of(answer) == "unauthenticated"
        assert answer.headers["www-authenticate"] == 'Bearer realm="headrace"'
        for headers in (
            bearer(stranger),
            bearer(issuer.token(exp=1)),
            bearer("x"),
            {"Authorization": "Basic YTpi"},
            {"Authorization": ""},
        ):
            answer = await http.get("/feeds", headers=headers)
            assert answer.status_code == 401, headers
            assert code_of(answer) == "unauthenticated"
            assert answer.headers["www-authenticate"] == 'Bearer realm="headrace", error="invalid_token"'
            assert stranger not in answer.text
        twice = [("Authorization", f"Bearer {issuer.token()}")] * 2
        assert (await http.get("/feeds", headers=twice)).status_code == 401


async def test_token_without_a_role_of_ours_is_forbidden(tmp_path: Path, issuer: Issuer) -> None:
    async with guarded(tmp_path, issuer) as http:
        headers = bearer(issuer.token(roles=["offline_access"]))
        for _ in range(2):
            answer = await http.get("/feeds", headers=headers)
            assert code_of(answer) == "forbidden"
            assert answer.status_code == 403
            assert answer.headers["www-authenticate"] == 'Bearer realm="headrace", error="insufficient_scope"'


async def test_health_needs_no_token_and_grants_nothing(tmp_path: Path, issuer: Issuer) -> None:
    async with guarded(tmp_path, issuer) as http:
        answer = await http.get("/healthz")
        assert (answer.status_code, answer.text) == (200, "anonymous")
        for path in ("/healthz/", "/healthz/../feeds", "/HEALTHZ", "//healthz", "/metrics"):
            assert (await http.get(path)).status_code == 401, path


async def test_refused_head_request_has_no_body(tmp_path: Path, issuer: Issuer) -> None:
    async with guarded(tmp_path, issuer) as http:
        answer = await http.head("/feeds")
        assert (answer.status_code, answer.content) == (401, b"")
        assert (await http.get("/healthz")).status_code == 200, "the connection goes on"


async def test_refused_upload_leaves_the_connection_whole(tmp_path: Path, issuer: Issuer) -> None:
    async with guarded(tmp_path, issuer) as http:
        assert (await http.post("/feeds/a/entries", content=b"x" * (4 << 20))).status_code == 401
        assert (await http.get("/feeds", headers=bearer(issuer.token(**LISTENER)))).status_code == 200


async def test_without_a_verifier_everybody_may_everything() -> None:
    async with serving(Guard(whoami, None)) as url, httpx.AsyncClient(trust_env=False) as http:
        for headers in ({}, {"Authorization": "Bearer nonsense"}):
            answer = await http.get(f"{url}/feeds", headers=headers)
            assert (answer.status_code, answer.text) == (200, "anonymous")


async def test_known_token_costs_no_coroutine_around_the_application(tmp_path: Path, issuer: Issuer) -> None:
    (tmp_path / "jwks.json").write_bytes(issuer.key_set())
    async with KeySource(FileKeyFetch(tmp_path / "jwks.json")) as keys:
        verifier = TokenVerifier(keys)
        token = issuer.token(**LISTENER)
        await verifier.verify(token)
        scope = {"type": "http", "path": "/poll", "headers": [(b"authorization", f"Bearer {token}".encode())]}
        serving_it = Guard(whoami, verifier)(scope, _never, _never_send)
        assert inspect.iscoroutine(serving_it)
        assert serving_it.cr_code is whoami.__code__
        serving_it.close()


async def test_application_without_a_guard_grants_nothing() -> None:
    with pytest.raises(Exception, match="nobody has checked"):
        await whoami({"type": "http", "path": "/feeds"}, _never, _never_send)


async def _never() -> dict[str, Any]:
    raise AssertionError


async def _never_send(_: Any) -> None:
    raise AssertionError


async def test_no_authorization_header_makes_the_server_fail(tmp_path: Path, issuer: Issuer) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    good = issuer.token(**LISTENER)
    async with guarded(tmp_path, issuer) as http:
        for number in range(scaled(300)):
            header = _mutated(rng, f"Bearer {good}")
            answer = await http.get("/feeds", headers=[(b"Authorization", header)])
            # 503: a second header names a key that nobody knows, so soon that the keys are not asked for again.
            is_told = answer.status_code == 503 and code_of(answer) == KeysUnavailable.code
            assert is_told or answer.status_code in {200, 400, 401}, (seed, number, header)
            if answer.status_code == 200:
                scheme, token = header.split()
                assert (scheme.lower(), token) == (b"bearer", good.encode()), (seed, number, header)


def _mutated(rng: random.Random, header: str) -> bytes:
    """Return ``header`` with something done to it that a client may send."""
    raw = bytearray(header.encode())
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(raw) + 1)
        match rng.randrange(7):
            case 0:
                raw[place:place] = bytes(
                    rng.choice(b" .\t=-_aZ09+/,;\x80\xff") for _ in range(rng.randrange(1, 5))
                )
            case 1:
                del raw[place : place + rng.randrange(1, 40)]
            case 2:
                raw = bytearray(raw[:place].swapcase() + raw[place:])
            case 3:
                raw[place:place] = raw[: rng.randrange(1, len(raw) + 1)]
            case 4:
                parts = raw.split(b".")
                rng.shuffle(parts)
                raw = bytearray(b".".join(parts))
            case 5:
                raw = bytearray(
                    rng.choice([b"", b"Bearer", b"Bearer ", b"Basic a", b"Bearer ..", b"Bearer a.b.c"])
                )
            case _:
                letters = string.ascii_letters + string.digits + "-_.=" * 4
                raw = bytearray(b"Bearer " + "".join(rng.choices(letters, k=rng.randrange(1, 300))).encode())
        raw = raw or bytearray(b"x")
    return bytes(raw).strip() or b"x"


async def test_keys_that_are_not_there_are_503(tmp_path: Path, issuer: Issuer) -> None:
    async with (
        KeySource(FileKeyFetch(tmp_path / "none.json")) as keys,
        serving(Guard(whoami, TokenVerifier(keys))) as url,
        httpx.AsyncClient(base_url=url, trust_env=False) as http,
    ):
        answer = await http.get("/feeds", headers=bearer(issuer.token()))
        assert answer.status_code == 503
        assert code_of(answer) == "keys-unavailable"
        assert answer.headers["retry-after"] == "1"
        assert (await http.get("/healthz")).status_code == 200


def client_context(authority: Authority, *, name: str | None = None) -> ssl.SSLContext:
    """A client's TLS that trusts ``authority``, with a certificate ``name`` of it."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if name is not None:
        context.load_cert_chain(*authority.sign(name))
    return context


async def test_over_tls_with_client_certificates(tmp_path: Path, issuer: Issuer) -> None:
    authority = Authority(tmp_path)
    others = tmp_path / "others"
    others.mkdir()
    stranger = Authority(others, "stranger")
    server = authority.sign("server")
    files = Tls(TlsSettings(cert=server.cert, key=server.key, client_ca=authority.file))
    (tmp_path / "jwks.json").write_bytes(issuer.key_set())
    headers = bearer(issuer.token(**LISTENER))
    async with (
        KeySource(FileKeyFetch(tmp_path / "jwks.json")) as keys,
        serving(Guard(whoami, TokenVerifier(keys)), tls=files.ssl_context) as url,
    ):
        with_own = client_context(authority, name="client")
        async with httpx.AsyncClient(verify=with_own, trust_env=False) as http:
            assert (await http.get(url, headers=headers)).status_code == 200
            assert (await http.get(url)).status_code == 401, "a certificate is no token"
        foreign = ssl.create_default_context(cafile=str(authority.file))
        foreign.load_cert_chain(*stranger.sign("client"))
        for context in (client_context(authority), foreign):
            async with httpx.AsyncClient(verify=context, trust_env=False) as http:
                with pytest.raises(httpx.TransportError):
                    await http.get(url, headers=headers)
        async with httpx.AsyncClient(verify=client_context(stranger), trust_env=False) as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.get(url)
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get(url.replace("https", "http"))


async def _serial(context: ssl.SSLContext, url: str) -> bytes:
    """The certificate that a new connection is shown."""
    port = int(url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return bytes(shown)


async def test_new_certificate_and_new_client_authority_need_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S_MIN", 0.0)
    authority = Authority(tmp_path)
    server = authority.sign("server")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.file.read_bytes())
    later = tmp_path / "later"
    later.mkdir()
    new = Authority(later)
    files = Tls(TlsSettings(cert=server.cert, key=server.key, client_ca=clients))
    async with serving(Guard(whoami, None), tls=files.ssl_context) as url:
        context = client_context(authority, name="client")
        before = await _serial(context, url)
        assert await _serial(context, url) == before
        authority.sign("server")
        assert await _serial(context, url) != before

        async def served(given: ssl.SSLContext) -> bool:
            try:
                async with httpx.AsyncClient(verify=given, trust_env=False) as http:
                    return (await http.get(url)).status_code == 200
            except httpx.TransportError:
                return False

        of_new = ssl.create_default_context(cafile=str(authority.file))
        of_new.load_cert_chain(*new.sign("client"))
        assert await served(context)
        assert not await served(of_new)
        clients.write_bytes(new.file.read_bytes())
        await async_wait_until(lambda: served(of_new), what="the new authority to be taken")
        assert not await served(context), "the old authority is no longer taken"
