"""A server with ``--tls-client-ca``: who has no certificate, or does not ask for TLS, is not let in, token or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import psycopg2
import pytest

from tests.certificates import Authority, Pair
from tests.identity import Issuer
from tests.pg import Bare, port_of, query, states_of
from tests.ports import free_port
from tests.servers import ServerProcess


class Guarded(NamedTuple):
    """``password`` is a token, where the server asks for one."""

    server: ServerProcess
    authority: Authority
    client: Pair
    password: str

    def ask(self, **given: str) -> list[tuple[str, ...]]:
        """Run a query in a session with the token and these settings."""
        settings = {"sslrootcert": str(self.authority.file), "password": self.password} | given
        return query(self.server, "SELECT current_database()", **settings)


@pytest.fixture(scope="module", params=["no tokens", "tokens"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority, issuer = Authority(folder), Issuer()
    own, client = authority.sign("server"), authority.sign("client")
    given = ["--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-client-ca", str(authority.file)]
    password = "none"
    if request.param == "tokens":
        keys = folder / "jwks.json"
        keys.write_bytes(issuer.key_set())
        given += ["--auth-jwks", keys.as_uri()]
        password = issuer.token()
    server = ServerProcess(folder, args=["--pg", f"127.0.0.1:{free_port()}", *given])
    server.start()
    try:
        yield Guarded(server, authority, client, password)
    finally:
        server.kill()
    assert "Traceback" not in server.errors()


def test_with_a_certificate_one_is_let_in(guarded: Guarded) -> None:
    cert, key = guarded.client
    key.chmod(0o600)
    assert guarded.ask(sslmode="verify-full", sslcert=str(cert), sslkey=str(key)) == [("headrace",)]


def test_without_a_certificate_nobody_is_let_in(guarded: Guarded) -> None:
    with pytest.raises(psycopg2.OperationalError):
        guarded.ask(sslmode="verify-full", sslcert="none", sslkey="none")


def test_who_does_not_ask_for_tls_is_not_let_in(guarded: Guarded) -> None:
    with pytest.raises(psycopg2.OperationalError, match="over an unencrypted connection"):
        guarded.ask(sslmode="disable")
    client = Bare(port_of(guarded.server))
    client.startup()
    answered = client.all()
    client.close()
    assert [kind for kind, _ in answered] == [b"E"]
    assert states_of(answered) == ["28000"]
