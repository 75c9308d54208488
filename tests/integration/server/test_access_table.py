"""Every call of the API and of the gRPC services, by every kind of caller: who gets in is written here once more.

A route or a method that is added without a line here fails, and so does one that lets in whom its line does not name.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.server.http.routes import ROUTES
from headrace.wire.generated import log_pb2, wal_pb2
from tests.identity import Issuer
from tests.reports import report
from tests.secured import SecuredServer, secured
from tests.servers import Feed, changes, code_of

FEED, TENANT = "vmapi::vm", "east"

KNOWN: dict[str, dict[str, Any]] = {
    "no-role": {"roles": ["reader"], "feeds": ["*"], "tenant": TENANT},
    "publisher": {"roles": ["publisher"], "feeds": ["vmapi::*"]},
    "publisher-of-tenant": {"roles": ["publisher"], "feeds": ["*"], "tenant": TENANT},
    "publisher-elsewhere": {"roles": ["publisher"], "feeds": ["cnapi::*"]},
    "publisher-of-west": {"roles": ["publisher"], "feeds": ["*"], "tenant": "west"},
    "publisher-of-nothing": {"roles": ["publisher"]},
    "listener": {"roles": ["listener"], "feeds": ["vmapi::*"]},
    "listener-elsewhere": {"roles": ["listener"], "feeds": ["cnapi::*"]},
    "listener-of-west": {"roles": ["listener"], "feeds": ["*"], "tenant": "west"},
    "replication": {"role": "replication", "roles": None, "tenant": TENANT},
    "replication-of-west": {"role": "replication", "roles": None, "tenant": "west"},
    "replication-of-nothing": {"role": "replication", "roles": None},
    "admin": {"roles": ["admin"], "tenant": "west", "feeds": []},
}
"""Callers whose tokens are good, by the claims in them."""
UNKNOWN = ("nobody", "garbage", "expired", "of-another-issuer", "unsigned")
"""Callers whose tokens are not."""

PUBLISHERS = {"publisher", "publisher-of-tenant", "admin"}
LISTENERS = {"listener", "admin"}
SEERS = {*PUBLISHERS, *LISTENERS, "replication"}
EVERYBODY = set(KNOWN) - {"no-role"}
STREAMERS = {"replication", "replication-of-west", "admin"}
ALL = {*KNOWN, *UNKNOWN}

CALLS: dict[tuple[str, str], set[str]] = {
    ("POST", "/publishers/register"): PUBLISHERS,
    ("POST", "/publishers/{agent-id}/release"): {"admin"},
    ("POST", "/feeds/{change-feed-id}/entries"): PUBLISHERS,
    ("GET", "/feeds/{change-feed-id}/entries"): LISTENERS,
    ("GET", "/feeds/{change-feed-id}/tail"): SEERS,
    ("GET", "/feeds/{change-feed-id}/settings"): SEERS,
    ("PUT", "/feeds/{change-feed-id}/settings"): PUBLISHERS,
    ("GET", "/feeds/{change-feed-id}/poll"): LISTENERS,
    ("GET", "/feeds/{change-feed-id}/stream"): LISTENERS,
    ("POST", "/listeners/register"): LISTENERS,
    ("PUT", "/listeners/{listener-id}/feeds/{change-feed-id}/position"): LISTENERS,
    ("POST", "/listeners/{listener-id}/feeds/{change-feed-id}/hydration"): LISTENERS,
    ("DELETE", "/listeners/{listener-id}/feeds/{change-feed-id}/hydration"): LISTENERS,
    ("GET", "/feeds/{change-feed-id}/snapshot"): LISTENERS,
    ("GET", "/feeds/{change-feed-id}/trace"): LISTENERS,
    ("GET", "/feeds/{change-feed-id}/schemas"): SEERS,
    ("GET", "/feeds/{change-feed-id}/schemas/{database}/{table}/{version}"): SEERS,
    ("GET", "/feeds"): EVERYBODY,
    ("GET", "/feeds/{change-feed-id}"): SEERS,
    ("GET", "/retention"): {"admin"},
    ("POST", "/streams/rotate"): {"admin"},
    ("GET", "/alarms"): {"admin"},
    ("PUT", "/reports/{kind}/{name}"): PUBLISHERS,
    ("GET", "/reports"): {"admin"},
    ("DELETE", "/reports/{kind}/{name}"): {"admin"},
    ("GET", "/healthz"): ALL,
    ("GET", "/readyz"): ALL,
    ("GET", "/metrics"): {"admin"},
    ("GET", "/runbook/{code}"): ALL,
    ("GET", "/openapi.json"): ALL,
}
"""Who gets in, by method and path."""

BODIES: Mapping[str, Any] = {
    "/publishers/register": {"agent-id": "agent-1", "change-feed-id": FEED},
    "/feeds/{change-feed-id}/entries": {"agent-id": "agent-1", "changes": changes(1)},
    "/feeds/{change-feed-id}/settings": {"key-field": "uuid"},
    "/listeners/register": {"listener-id": "listener-1", "change-feed-id": FEED},
    "/listeners/{listener-id}/feeds/{change-feed-id}/position": {"incarnation": "x", "sequence-id": 0},
    "/listeners/{listener-id}/feeds/{change-feed-id}/hydration": {},
    "/reports/{kind}/{name}": report(FEED),
}
QUERIES: Mapping[str, str] = {
    "/feeds/{change-feed-id}/entries": "beg-sequence-id=1",
    "/feeds/{change-feed-id}/poll": "listener-id=listener-1&timeout-ms=0",
    "/feeds/{change-feed-id}/stream": "listener-id=listener-1",
    "/feeds/{change-feed-id}/snapshot": "listener-id=listener-1",
    "/feeds/{change-feed-id}/trace": "sequence-id=1",
}

APPEND = log_pb2.AppendRequest(feed=FEED, producer_id="agent-1").SerializeToString()
METHODS: dict[str, tuple[bytes, set[str]]] = {
    "/headrace.log.v1.LogAppend/Append": (APPEND, PUBLISHERS),
    "/headrace.log.v1.LogAppend/AppendStream": (APPEND, PUBLISHERS),
    "/headrace.log.v1.LogAppend/Tail": (log_pb2.TailRequest(feed=FEED).SerializeToString(), SEERS),
    "/kdb.wal.v1.WalStream/Subscribe": (b"", STREAMERS),
    "/kdb.wal.v1.WalStream/Ack": (wal_pb2.AckRequest(ack_lsn="0.0.0").SerializeToString(), STREAMERS),
    "/kdb.wal.v1.WalStream/GetLSN": (b"", STREAMERS),
    "/grpc.health.v1.Health/Check": (b"", ALL),
}
"""Who gets in over gRPC, and with what request it is tried."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with a feed of the tenant ``east`` that has an entry and a listener."""
    with secured(tmp_path_factory.mktemp("secured"), Issuer(), args=["--stream-heartbeat", "2s"]) as running:
        feed = Feed(running, FEED)
        assert feed.register(tenant_id=TENANT).status_code == 200
        assert feed.listener().status_code == 200
        assert feed.post({"changes": changes(0)}).status_code == 200
        yield running


@pytest.fixture(scope="module")
def tokens(server: SecuredServer) -> dict[str, str | None]:
    """A token for each caller."""
    issuer = server.issuer
    head, _, rest = issuer.token().partition(".")
    return {
        **{name: issuer.token(**claims) for name, claims in KNOWN.items()},
        "nobody": None,
        "garbage": "not-a-token",
        "expired": issuer.token(exp=int(time.time()) - 1),
        "of-another-issuer": Issuer().token(),
        "unsigned": f"{head}.{rest.partition('.')[0]}.",
    }


def test_every_route_and_method_has_a_line() -> None:
    assert {(route.method, route.path) for route in ROUTES} == CALLS.keys()
    services = [*log_pb2.DESCRIPTOR.services_by_name.values(), *wal_pb2.DESCRIPTOR.services_by_name.values()]
    methods = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert methods <= METHODS.keys()
    assert len(KNOWN) + len(UNKNOWN) == len(ALL)


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("caller", sorted(ALL))
def test_who_gets_in_over_http(
    server: SecuredServer, tokens: dict[str, str | None], method: str, path: str, caller: str
) -> None:
    address = path.replace("{change-feed-id}", quote(FEED, safe=""))
    address = address.replace("{agent-id}", "agent-1").replace("{listener-id}", "listener-1")
    address = address.replace("{kind}", "agent").replace("{name}", f"agent-of-{caller}")
    query = QUERIES.get(path, "") if method == "GET" else ""
    body = BODIES.get(path) if method != "GET" else None
    with (
        server.client(tokens[caller]) as client,
        client.stream(method, f"{address}?{query}" if query else address, json=body) as answer,
    ):
        if caller in CALLS[method, path]:
            assert answer.status_code not in {401, 403}, answer.read()
            assert answer.status_code < 500
            return
        answer.read()
        wanted = ("unauthenticated", 401) if caller in UNKNOWN else ("forbidden", 403)
        assert (code_of(answer), answer.status_code) == wanted
        assert answer.headers["www-authenticate"].startswith("Bearer ")


async def streamed(
    channel: grpc.aio.Channel, method: str, request: bytes, metadata: tuple[tuple[str, str], ...]
) -> grpc.StatusCode:
    """How a stream that sends one request ends.

    A call that was refused before it is written to fails in ways that only its status tells apart; and where the write meets
    the very end, gRPC puts an error of its own in the status's place (grpc/grpc#36066): then it is asked again.
    """
    while True:
        call = channel.stream_stream(method)(metadata=metadata)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(request)
            await call.done_writing()
            await call.read()
        if "Internal error from Core" not in (await call.details() or ""):
            return await call.code()


@pytest.mark.parametrize("caller", sorted(ALL))
@pytest.mark.parametrize("method", METHODS)
async def test_who_gets_in_over_grpc(
    server: SecuredServer, tokens: dict[str, str | None], method: str, caller: str
) -> None:
    request, let_in = METHODS[method]
    token = tokens[caller]
    metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()

    async with open_channel(server.grpc_address) as channel, asyncio.timeout(60):
        status = grpc.StatusCode.OK
        try:
            if method.endswith("/AppendStream"):
                status = await streamed(channel, method, request, metadata)
            elif method.endswith("/Subscribe"):
                await channel.unary_stream(method)(request, metadata=metadata).read()
            else:
                await channel.unary_unary(method)(request, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            status = error.code()
    if caller in let_in:
        assert status in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    elif caller in UNKNOWN:
        assert status is grpc.StatusCode.UNAUTHENTICATED
    else:
        assert status is grpc.StatusCode.PERMISSION_DENIED


def test_a_feed_that_is_not_there_is_refused_like_one_that_is(
    server: SecuredServer, tokens: dict[str, str | None]
) -> None:
    for caller, code in (
        ("listener-elsewhere", "forbidden"),
        ("listener-of-west", "forbidden"),
        ("listener", ""),
    ):
        with server.client(tokens[caller]) as client:
            there = client.get(f"/feeds/{FEED}/entries?beg-sequence-id=1")
            absent = client.get("/feeds/vmapi::none/entries?beg-sequence-id=1")
        assert there.status_code == (403 if code else 200)
        assert code_of(absent) == (code or "feed-not-found")


def test_openapi_says_who_may_call_what(server: SecuredServer) -> None:
    document = server.http.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for (method, path), callers in CALLS.items():
        operation = document["paths"][path][method.lower()]
        roles = operation.get("x-headrace-roles", [])
        assert ("security" in operation) == (callers != ALL)
        assert ({"401", "403", "503"} <= operation["responses"].keys()) or callers == ALL
        if callers != ALL:
            assert {name.partition("-")[0] for name in callers} <= set(roles)
