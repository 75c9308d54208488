"""``--ca-file`` at every client: a server with a certificate of our own authority is trusted with it, and not without.

The scenario of the snapshot over the API shows the same of the agent and of a publisher's snapshot.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.errors import ConfigInvalid, ServerUnreachable
from headrace.pipeline.connection import Connection
from headrace.pipeline.source.options import Options
from headrace.pipeline.tables.job import entries_waiting
from tests import forks
from tests.certificates import Authority
from tests.identity import Issuer
from tests.secured import SecuredServer, secured
from tests.servers import Feed

FEED: Final = "shop"
COMMANDS: Final = (
    ["feeds", "settings", FEED],
    ["feeds", "retention", "explain"],
    ["listen", FEED, "--once"],
)
TABLES: Final = ["pipeline", "tables", "--feed", FEED, "--once", "--to", "tables"]
"""Such a job that trusts the authority runs where there is a Spark: ``tests/integration/pipeline/test_ca_file.py``."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with TLS, tokens, and a feed of one entry."""
    with secured(tmp_path_factory.mktemp("server"), Issuer(), tls=True) as running:
        feed = Feed(running, FEED)
        assert feed.register().status_code == 200
        assert feed.post({"changes": {"n": 1}}).status_code == 200
        yield running


@pytest.fixture
def token(server: SecuredServer, tmp_path: Path) -> Path:
    """A file with an admin's token."""
    file = tmp_path / "token"
    file.write_text(server.issuer.token())
    return file


def authority(server: SecuredServer) -> Path:
    assert server.authority is not None
    return server.authority.file


def run(
    words: list[str], server: SecuredServer, token: Path, *more: str, **environment: str
) -> tuple[int, str]:
    """Run a command in the token's folder; returns its exit code, and all that it printed."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_TLS_")}
    options = ["--server", server.url, "--token-file", str(token), "--json", *more]
    done = forks.run(
        [*forks.HEADRACE, *words, *options],
        env={**given, **environment},
        cwd=token.parent,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command_trusts_the_authority_of_its_file_and_no_other(
    words: list[str], server: SecuredServer, token: Path
) -> None:
    other = Authority(token.parent, "other")
    code, said = run(
        words, server, token, "--ca-file", str(authority(server)), HEADRACE_TLS_CA=str(other.file)
    )
    assert code == 0, said


@pytest.mark.parametrize("words", [*COMMANDS, TABLES], ids=" ".join)
def test_file_that_cant_be_used_is_named(words: list[str], server: SecuredServer, token: Path) -> None:
    code, said = run(words, server, token, "--ca-file", "/no/such/file")
    assert code == ConfigInvalid.exit_code, said
    assert json.loads(said.splitlines()[-1])["code"] == "config-invalid"
    assert "--ca-file /no/such/file" in said


async def test_appends_over_grpc_trust_the_authority_of_their_file(
    server: SecuredServer, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await asyncio.to_thread(Authority, token.parent, "other")
    monkeypatch.setenv("HEADRACE_TLS_CA", str(other.file))
    secret = token.read_text()
    async with LogAppendClient(server.grpc_url, token=secret, ca_file=authority(server)) as client:
        assert (await client.tail(FEED)).next_sequence_id == 2
    async with LogAppendClient(server.grpc_url, token=secret) as client:
        with pytest.raises(ServerUnreachable):
            await client.tail(FEED)
    with pytest.raises(ConfigInvalid, match="--ca-file"):
        LogAppendClient(server.grpc_url, token=secret, ca_file=Path("/no/such/file"))


async def test_server_of_another_authority_is_not_spoken_to(server: SecuredServer, token: Path) -> None:
    other = await asyncio.to_thread(Authority, token.parent, "other")
    async with FeedClient(server.url, token=token.read_text(), ca_file=other.file) as client:
        with pytest.raises(ServerUnreachable, match="certificate"):
            await client.feeds()
    async with FeedClient(server.url, token=token.read_text(), ca_file=authority(server)) as client:
        assert [feed.change_feed_id for feed in await client.feeds()] == [FEED]


def test_pipeline_trusts_the_authority_of_its_file(server: SecuredServer, token: Path) -> None:
    files = {"token-file": str(token), "ca-file": str(authority(server))}
    given = Options({"endpoint": server.url, "feeds": FEED, **files}, streaming=False)
    with Connection(given.endpoint) as connection:
        assert connection.feed(FEED).head_sequence_id == 1
    tables = str(token.parent / "tables")
    assert entries_waiting(server.url, FEED, tables, *files.values()) == 1
