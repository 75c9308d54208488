"""Calls as grpcurl makes them: by what the server or the RFC's proto says, with the limits that clients have by default."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import grpc
import httpx
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from headrace.client.log_append import LogAppendClient
from headrace.server.encoding import ENTRY_BYTES_MAX
from tests.certificates import Pair
from tests.identity import Issuer
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.dynamic import Calls, reflected, rfc_pool
from tests.integration.grpc.streams import halves, writes
from tests.secured import SecuredServer, secured
from tests.servers import ServerProcess, changes

WAL = "kdb.wal.v1.WalStream"
MESSAGE_BYTES_MAX = 4 << 20
"""What a gRPC client takes in unless it is told otherwise."""
ZSTD = 2


@pytest.fixture
def channel(own: ServerProcess) -> Iterator[grpc.Channel]:
    """A channel with the limits that every client has by default."""
    with grpc.insecure_channel(own.grpc_address) as opened:
        yield opened


@pytest.fixture(scope="session")
def rfc(tmp_path_factory: pytest.TempPathFactory) -> DescriptorPool:
    return rfc_pool(tmp_path_factory.mktemp("rfc"))


def entries_of(calls: Calls, count: int, **asked: Any) -> list[Any]:
    """The first ``count`` entries of a stream, checked one by one; nothing was compressed."""
    found: list[Any] = []
    for answer in calls.stream(f"{WAL}/Subscribe", asked):
        said: Any = answer
        assert said.WhichOneof("payload") == "batch", MessageToDict(answer)
        batch = said.batch
        assert batch.compression == 0
        assert (batch.first_lsn, batch.last_lsn) == (batch.entries[0].lsn, batch.entries[-1].lsn)
        for entry in batch.entries:
            crc = google_crc32c.value(bytes(entry.key + entry.value))
            assert entry.checksum == crc.to_bytes(4, "big")
            found.append(entry)
        if len(found) >= count:
            return found
    raise AssertionError("the stream ended")


def compressions_of(calls: Calls, count: int, **asked: Any) -> set[int]:
    """How the first ``count`` entries came, for who asked for their lengths."""
    kinds, read = set(), 0
    for answer in calls.stream(f"{WAL}/Subscribe", asked):
        said: Any = answer
        read += len(said.batch.entry_lengths) // 4
        kinds.add(said.batch.compression)
        if read >= count:
            return kinds
    raise AssertionError("the stream ended")


def test_services_are_found_and_described_by_the_server_itself(channel: grpc.Channel) -> None:
    assert set(ProtoReflectionDescriptorDatabase(channel).get_services()) == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "headrace.log.v1.LogAppend",
        WAL,
    }
    pool = reflected(channel)
    calls = Calls(channel, pool)
    method = calls.method(f"{WAL}/Subscribe")
    assert (method.client_streaming, method.server_streaming) == (False, True)
    assert method.input_type.full_name == "kdb.wal.v1.SubscribeRequest"
    assert method.output_type.full_name == "kdb.wal.v1.WalResponse"
    assert [one.name for one in method.containing_service.methods] == ["Subscribe", "Ack", "GetLSN"]
    append = pool.FindServiceByName("headrace.log.v1.LogAppend")
    assert {one.name for one in append.methods} == {"Append", "AppendStream", "Tail"}
    health = calls.ask("grpc.health.v1.Health/Check", {"service": WAL})
    assert health == {"status": "SERVING"}


def test_what_the_server_describes_holds_all_that_the_rfc_prints(
    channel: grpc.Channel, rfc: DescriptorPool
) -> None:
    """Names, numbers, types, labels and enum values; what is more has numbers from 100 up."""
    described = reflected(channel).FindFileContainingSymbol(WAL)
    printed = rfc.FindFileByName("rfc010.proto")
    assert described.package == printed.package == "kdb.wal.v1"
    for name, message in printed.message_types_by_name.items():
        here = described.message_types_by_name[name]
        for field in message.fields:
            ours = here.fields_by_name[field.name]
            assert (ours.number, ours.type, ours.is_repeated) == (field.number, field.type, field.is_repeated)
            kind, own = field.message_type or field.enum_type, ours.message_type or ours.enum_type
            assert (kind and kind.full_name) == (own and own.full_name)
            assert (field.containing_oneof and field.containing_oneof.name) == (
                ours.containing_oneof and ours.containing_oneof.name
            )
        more = {field.number for field in here.fields} - {field.number for field in message.fields}
        assert all(number >= 100 for number in more), name
    for name, kind in printed.enum_types_by_name.items():
        values = described.enum_types_by_name[name].values_by_name
        assert {word: one.number for word, one in kind.values_by_name.items()} == {
            word: one.number for word, one in values.items()
        }


def test_subscribe_ack_and_getlsn_by_json(own: ServerProcess, channel: grpc.Channel) -> None:
    calls = Calls(channel, reflected(channel))
    assert calls.ask(f"{WAL}/GetLSN") == {
        "headLsn": "0000000000000000.0000000000.0000000000",
        "oldestLsn": "0000000000000000.0000000000.0000000000",
    }
    feed = registered(own, "json::feed")
    said = feed.post(*({"changes": changes(number)} for number in (1, 2, 3))).json()
    assert calls.ask(f"{WAL}/GetLSN") == {"headLsn": said["last-lsn"], "oldestLsn": said["first-lsn"]}
    stream = calls.stream(f"{WAL}/Subscribe", {"batchSizeHint": 2})
    first, second = (MessageToDict(next(stream))["batch"] for _ in range(2))
    assert [len(one["entries"]) for one in (first, second)] == [2, 1]
    entry = first["entries"][0]
    assert entry["lsn"] == said["first-lsn"]
    assert base64.b64decode(entry["key"]) == b"object-1"
    assert json.loads(base64.b64decode(entry["value"])) == changes(1)
    assert second["lastLsn"] == said["last-lsn"]
    assert calls.ask(f"{WAL}/Ack", {"ackLsn": second["lastLsn"]}) == {"watermarkLsn": said["last-lsn"]}
    with pytest.raises(grpc.RpcError) as refused:
        calls.ask(f"{WAL}/Ack", {"ackLsn": "no LSN"})
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def code_of_get_lsn(calls: Calls) -> grpc.StatusCode:
    try:
        calls.ask(f"{WAL}/GetLSN")
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def append_for_tenants(server: SecuredServer, pair: Pair, token: str) -> None:
    """One entry for each of two tenants, in this order."""
    assert server.authority is not None
    context = ssl.create_default_context(cafile=str(server.authority.file))
    context.load_cert_chain(pair.cert, pair.key)
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, verify=context, headers=bearer, trust_env=False) as http:
        for tenant in ("east", "west"):
            asked = {"agent-id": "a", "change-feed-id": tenant, "tenant-id": tenant}
            assert http.post("/publishers/register", json=asked).status_code == 200
            entry = {"agent-id": "a", "changes": {"uuid": tenant}}
            assert http.post(f"/feeds/{tenant}/entries", json=entry).status_code == 200


def test_over_mtls_with_tokens_of_the_rfcs_roles(tmp_path: Path, rfc: DescriptorPool) -> None:
    """A certificate lets the connection in; the token says whose entries it is sent."""
    folder = tmp_path / "server"
    clients = ["--tls-client-ca", str(folder / "authority.pem")]
    with secured(folder, Issuer(), args=clients, tls=True) as server:
        assert server.authority is not None
        pair = server.authority.sign("client")
        roots, key, cert = (path.read_bytes() for path in (server.authority.file, pair.key, pair.cert))
        credentials = grpc.ssl_channel_credentials(roots, key, cert)
        admin, east = (
            server.issuer.token(roles=None, role="admin"),
            server.issuer.token(roles=None, role="replication", tenant="east"),
        )
        with grpc.secure_channel(server.grpc_address, grpc.ssl_channel_credentials(roots)) as channel:
            assert code_of_get_lsn(Calls(channel, rfc, token=admin)) is grpc.StatusCode.UNAVAILABLE
        with grpc.secure_channel(server.grpc_address, credentials) as channel:
            assert code_of_get_lsn(Calls(channel, rfc)) is grpc.StatusCode.UNAUTHENTICATED
            assert code_of_get_lsn(Calls(channel, rfc, token=admin)) is grpc.StatusCode.OK
            append_for_tenants(server, pair, admin)
            for token, asked, seen in (
                (admin, {}, ["east", "west"]),
                (admin, {"tenantFilter": "west"}, ["west"]),
                (east, {}, ["east"]),
            ):
                calls = Calls(channel, rfc, token=token)
                assert [one.tenant_id for one in entries_of(calls, len(seen), **asked)] == seen
            calls = Calls(channel, rfc, token=east)
            with pytest.raises(grpc.RpcError) as refused:
                next(calls.stream(f"{WAL}/Subscribe", {"tenantFilter": "west"}))
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def large_log(server: ServerProcess) -> int:
    """1,000 entries of 12 KB in one append, entries at the bound, and small ones between; returns how many."""
    feed = registered(server)
    async with LogAppendClient(server.grpc_address) as appender:
        await appender.append(writes(feed), halves(1, 1000, value=b" " * 12_000))
        at = 1001
        for _ in range(4):
            bare = len(halves(at, at, value=b" " * 1_000_000)[0]) - 1_000_000
            largest = halves(at, at, value=b" " * (ENTRY_BYTES_MAX - bare))
            assert len(largest[0]) == ENTRY_BYTES_MAX
            await appender.append(writes(feed), largest)
            await appender.append(writes(feed), halves(at + 1, at + 2))
            at += 3
    return at - 1


async def test_no_message_is_too_large_for_a_client_with_default_limits(
    own: ServerProcess, channel: grpc.Channel, rfc: DescriptorPool
) -> None:
    count = await large_log(own)
    for asked in ({}, {"batchSizeHint": 1000}, {"batchSizeHint": 7}):
        calls = Calls(channel, rfc)
        keys = [bytes(entry.key) for entry in entries_of(calls, count, **asked)]
        assert keys == [b"key-%d" % number for number in range(1, count + 1)]
        assert max(calls.sizes) < MESSAGE_BYTES_MAX
    # What our own fields add does not make one larger than that either.
    calls = Calls(channel, reflected(channel))
    compressions_of(calls, count, wantLengths=True)
    assert max(calls.sizes) < MESSAGE_BYTES_MAX


async def test_who_did_not_ask_is_never_sent_compression_nor_any_field_of_ours(
    own: ServerProcess, channel: grpc.Channel, rfc: DescriptorPool
) -> None:
    count = await large_log(own)
    asked, plain = Calls(channel, reflected(channel)), Calls(channel, rfc)
    entries_of(plain, count)
    kinds = compressions_of(asked, count, wantLengths=True, acceptCompression=["SNAPPY", "ZSTD"])
    assert ZSTD in kinds, "the very same entries are worth compressing"
    assert sum(plain.sizes) > 100 * sum(asked.sizes)
    first: Message = next(iter(plain.stream(f"{WAL}/Subscribe")))
    batch: Any = first
    unknown = UnknownFieldSet(batch.batch)
    ours = {unknown[index].field_number for index in range(len(unknown))}
    assert not ours & {100, 101}, "compressed entries, and lengths"
