"""Tokens as passwords over TLS: who is let in, what a token's tenant leaves, and how a stream ends with its token."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import psycopg2
import psycopg2.errors
import pytest

from tests.identity import Issuer
from tests.pg import Bare, connect, port_of, query, replicating, ssl_request, startup_packet
from tests.ports import free_port
from tests.secured import SecuredServer, secured
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[SecuredServer]:
    """A server with TLS that asks for tokens; the feeds ``east`` and ``west`` are of the tenants of these names."""
    folder = tmp_path_factory.mktemp("secured")
    with secured(folder, issuer, args=["--pg", f"127.0.0.1:{free_port()}"], tls=True) as server:
        for tenant in ("east", "west"):
            asked = {"agent-id": "a", "change-feed-id": tenant, "tenant-id": tenant}
            assert server.http.post("/publishers/register", json=asked).status_code == 200
        yield server
    assert "Traceback" not in server.errors()


def post(server: SecuredServer, feed: str) -> None:
    entries = {"entries": [{"agent-id": "a", "changes": {"uuid": feed}}]}
    answer: httpx.Response = server.http.post(f"/feeds/{feed}/entries", json=entries)
    assert answer.status_code == 200, answer.text


def tls_of(server: SecuredServer) -> dict[str, str]:
    assert server.authority is not None
    return {"sslmode": "verify-full", "sslrootcert": str(server.authority.file)}


def test_a_token_over_tls_is_let_in(safe: SecuredServer, issuer: Issuer) -> None:
    rows = query(safe, "SELECT current_database()", password=issuer.token(), **tls_of(safe))
    assert rows == [("headrace",)]


def test_no_token_is_taken_in_clear(safe: SecuredServer, issuer: Issuer) -> None:
    with pytest.raises(psycopg2.OperationalError, match="no token, over an unencrypted connection"):
        connect(safe, password=issuer.token(), sslmode="disable")


@pytest.mark.parametrize("password", ["", "nonsense", "a.b.c", "x" * 9000])
def test_what_is_no_token_is_refused(safe: SecuredServer, password: str) -> None:
    with pytest.raises(psycopg2.OperationalError) as refused:
        connect(safe, password=password or "''", **tls_of(safe))
    assert password[:100] not in str(refused.value) or not password


def test_a_token_that_may_not_replicate_is_refused(safe: SecuredServer, issuer: Issuer) -> None:
    token = issuer.token(roles=["listener"], feeds=["east"])
    with pytest.raises(psycopg2.OperationalError, match="stream the log"):
        connect(safe, password=token, **tls_of(safe))


def test_a_tenant_sees_its_own_alone(safe: SecuredServer, issuer: Issuer) -> None:
    token = issuer.token(sub="eve", roles=["replication"], tenant="east")
    given = {"password": token, **tls_of(safe)}
    with pytest.raises(psycopg2.OperationalError, match='"west" does not exist'):
        connect(safe, "west", **given)
    connection = replicating(safe, **given)
    with connection.cursor() as cursor:
        cursor.create_replication_slot("eves", output_plugin="headrace")
        cursor.start_replication(slot_name="eves", decode=True, options={"feeds": "*"})
        post(safe, "west")
        post(safe, "east")
        message = wait_until(cursor.read_message, what="a record")
        assert '"feed":"east"' in message.payload.replace(" ", "")
    connection.close()


def test_a_slot_is_of_the_subject_that_made_it(safe: SecuredServer, issuer: Issuer) -> None:
    mine = {"password": issuer.token(sub="ada", roles=["replication"], tenant="east"), **tls_of(safe)}
    other = {"password": issuer.token(sub="bob", roles=["replication"], tenant="east"), **tls_of(safe)}
    query(safe, "SELECT pg_create_logical_replication_slot('adas', 'headrace')", **mine)
    assert not query(safe, "SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'adas'", **other)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        query(safe, "SELECT pg_drop_replication_slot('adas')", **other)
    connection = replicating(safe, **other)
    with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
        cursor.start_replication(slot_name="adas", decode=True)
    connection.close()
    query(safe, "SELECT pg_drop_replication_slot('adas')", **mine)


def test_a_stream_ends_with_its_token(safe: SecuredServer, issuer: Issuer) -> None:
    token = issuer.token(exp=int(time.time()) + 4)
    connection = replicating(safe, password=token, **tls_of(safe))
    with connection.cursor() as cursor:
        cursor.create_replication_slot("short", output_plugin="headrace")
        cursor.start_replication(slot_name="short", decode=True)

        def ends() -> bool:
            try:
                cursor.read_message()
            except psycopg2.DatabaseError as error:
                return "expired" in str(error)
            return False

        wait_until(ends, what="the stream to end")
    connection.close()


def test_what_comes_before_the_handshake_is_not_taken_for_encrypted(safe: SecuredServer) -> None:
    bare = Bare(port_of(safe))
    bare.send(ssl_request() + startup_packet())
    said = bare.read(1 << 16)
    assert b"unencrypted data after SSL request" in said or said == b""
    assert b"R\0\0\0" not in said
    bare.close()
