"""Tokens in the metadata of real gRPC calls: the grant or the status, over TLS, and the end of a stream with its token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.access import tls
from headrace.access.expiry import until_expired
from headrace.access.grpc_tls import server_credentials
from headrace.access.key_fetch import FileKeyFetch
from headrace.access.key_source import KeySource
from headrace.access.metadata import Denial, denial_of, grant_of_call
from headrace.access.tls import Tls, TlsSettings
from headrace.access.tokens import TokenVerifier
from headrace.client.credential import Credential
from headrace.errors import HeadraceError, Unauthenticated
from headrace.runtime.clock import Clock, SystemClock
from headrace.testing.clock import ManualClock
from tests.certificates import Authority
from tests.identity import Issuer
from tests.waiting import async_wait_until


class Door:
    """A service that says who calls: once, or again and again until the token ends."""

    def __init__(self, verifier: TokenVerifier | None, clock: Clock) -> None:
        self._verifier = verifier
        self._clock = clock

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for a gRPC server."""
        return grpc.method_handlers_generic_handler(
            "test.Door",
            {
                "Who": grpc.unary_unary_rpc_method_handler(self._who),
                "Stream": grpc.unary_stream_rpc_method_handler(self._stream),
            },
        )

    async def _who(self, _: bytes, context: Any) -> bytes:
        grant = await grant_of_call(context.invocation_metadata(), self._verifier)
        if isinstance(grant, Denial):
            await context.abort(grant.status, grant.details)
            raise AssertionError
        return grant.subject.encode()

    async def _stream(self, _: bytes, context: Any) -> None:
        grant = await grant_of_call(context.invocation_metadata(), self._verifier)
        assert not isinstance(grant, Denial)
        try:
            async with until_expired(grant, self._clock):
                await context.write(b"began")
                await async_wait_until(lambda: False, 60)
        except Unauthenticated as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.detail)


@asynccontextmanager
async def door(
    verifier: TokenVerifier | None,
    credentials: grpc.ServerCredentials | None = None,
    *,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """A gRPC server with the service; yields its address."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Door(verifier, clock or SystemClock()).handler(),))
    address = "127.0.0.1:0"
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def verifying(folder: Path, issuer: Issuer, clock: Clock | None = None) -> AsyncIterator[TokenVerifier]:
    """A verifier of the issuer's tokens."""
    file = folder / "jwks.json"
    file.write_bytes(issuer.key_set())
    async with KeySource(FileKeyFetch(file)) as keys:
        yield TokenVerifier(keys, clock=clock)


async def who(channel: grpc.aio.Channel, metadata: Any = None) -> str:
    """Call once."""
    answer: bytes = await channel.unary_unary("/test.Door/Who")(b"", metadata=metadata, timeout=30)
    return answer.decode()


async def test_bearer_in_the_metadata(tmp_path: Path) -> None:
    issuer = Issuer()
    async with (
        verifying(tmp_path, issuer) as verifier,
        door(verifier) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        token = issuer.token(sub="standby", role="replication", tenant="t1", roles=None)
        assert await who(channel, Credential(token).metadata()) == "standby"
        for metadata, status in (
            (None, grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", "Bearer x"),), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", "Basic x"),), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization-bin", f"Bearer {token}".encode()),), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", f"Bearer {token}"),) * 2, grpc.StatusCode.UNAUTHENTICATED),
            (Credential(issuer.token(exp=1)).metadata(), grpc.StatusCode.UNAUTHENTICATED),
            (Credential(issuer.token(roles=["other"])).metadata(), grpc.StatusCode.PERMISSION_DENIED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await who(channel, metadata)
            assert refused.value.code() is status, metadata
            assert token not in str(refused.value.details())


async def test_keys_that_are_not_there_are_unavailable(tmp_path: Path) -> None:
    async with (
        KeySource(FileKeyFetch(tmp_path / "none")) as keys,
        door(TokenVerifier(keys)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await who(channel, Credential(Issuer().token()).metadata())
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_without_a_verifier_everybody_may_everything() -> None:
    async with door(None) as address, grpc.aio.insecure_channel(address) as channel:
        assert await who(channel) == "anonymous"


async def test_stream_ends_with_its_token(tmp_path: Path) -> None:
    issuer = Issuer()
    clock = ManualClock(
        ms=SystemClock().wall_ms()
    )  # it stands still: a slow machine does not end the token early
    async with (
        verifying(tmp_path, issuer, clock) as verifier,
        door(verifier, clock=clock) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        token = issuer.token(exp=clock.ms / 1000 + 0.2)
        call = channel.unary_stream("/test.Door/Stream")(
            b"", metadata=Credential(token).metadata(), timeout=50
        )
        assert await call.read() == b"began"
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert ended.value.details() == "the token has expired"


async def test_errors_of_other_kinds_are_internal() -> None:
    assert denial_of(HeadraceError("x")).status is grpc.StatusCode.INTERNAL


def _channel(address: str, authority: Authority, name: str | None) -> grpc.aio.Channel:
    """A channel that trusts ``authority`` and shows its certificate ``name``."""
    pair = authority.sign(name) if name is not None else None
    credentials = grpc.ssl_channel_credentials(
        authority.file.read_bytes(),
        pair.key.read_bytes() if pair else None,
        pair.cert.read_bytes() if pair else None,
    )
    # A channel of its own: gRPC would share connections between channels of one address.
    return grpc.aio.secure_channel(address, credentials, options=(("grpc.use_local_subchannel_pool", 1),))


async def test_over_tls_with_client_certificates_that_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_S_MIN", 0.0)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (Authority(folder, folder.name) for folder in folders)
    server, clients = one.sign("server"), tmp_path / "clients.pem"
    clients.write_bytes(one.file.read_bytes())
    files = Tls(TlsSettings(cert=server.cert, key=server.key, client_ca=clients))
    async with door(None, server_credentials(files)) as address:

        async def served(authority: Authority, name: str | None) -> bool:
            async with _channel(address, authority, name) as channel:
                try:
                    return await who(channel) == "anonymous"
                except grpc.aio.AioRpcError:
                    return False

        assert await served(one, "client")
        assert not await served(one, None)
        assert not await served(two, "client")
        clients.write_bytes(two.file.read_bytes())
        two_server = two.sign("server")
        server.key.write_bytes(two_server.key.read_bytes())
        server.cert.write_bytes(two_server.cert.read_bytes())

        async def moved() -> bool:
            return await served(two, "client")

        await async_wait_until(moved, what="the new files to be taken")
        assert not await served(one, "client")
