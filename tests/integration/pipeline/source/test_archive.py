"""Archives with a real server: a feed that began above 1, entries that a repair skipped, files named by relative paths."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import SequenceLost
from headrace.pipeline.connection import Connection, Endpoint
from tests import forks
from tests.fault.journals import flip, segments
from tests.identity import Issuer
from tests.integration.pipeline.source.queries import (
    Query,
    archived,
    batch,
    failing,
    oldest,
    post,
)
from tests.secured import SecuredServer, secured
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

DROPPING = ("--retention", "1ms", "--retention-every", "100ms")


def post_from(feed: Feed, first: int) -> None:
    """One append of an entry that says itself which it is."""
    entry = {"change-feed-id": feed.name, "key": f"k{first}", "changes": {"n": first}, "sequence-id": first}
    answer = feed.post(entry)
    assert answer.status_code == 200, answer.text


def access(server: SecuredServer, folder: Path) -> tuple[str, str]:
    """Paths of a listener's token and of the authority's certificate, from the present folder on."""
    token = folder / "token"
    token.write_text(server.issuer.token(sub="job", roles=["listener"], feeds=["f::*"]))
    assert server.authority is not None
    return os.path.relpath(token), os.path.relpath(server.authority.file)


def test_with_an_archive_oldest_is_the_feeds_first_entry_ever(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with secured(tmp_path / "server", Issuer(), args=("--segment-size", "4k"), tls=True) as server:
        feed = Feed(server, "f::63")
        assert feed.register().status_code == 200
        post_from(feed, 63)
        for first in range(64, 104, 4):
            post(feed, first, 4)
        token, ca = access(server, tmp_path)
        archived(feed, archive, 63, 83, Endpoint(server.url, token, ca))
        archived(feed, archive, 84, 103, Endpoint(server.url, token, ca))
        server.args += DROPPING
        server.restart()
        assert feed.register().status_code == 200
        wait_until(lambda: oldest(feed) > 70, what="retention to pass the feed's beginning")

        given = {"token_file": token, "ca_file": ca, "archive": os.path.relpath(archive)}
        query = Query(spark, feed, tmp_path, start="oldest", max_entries=20, **given)
        query.run()
        assert [number for ids in query.ids for number in ids] == list(range(63, 104))
        for start in ("oldest", "1"):
            rows = batch(spark, feed, start=start, partition_entries=15, **given).collect()
            assert [row["sequence_id"] for row in rows] == list(range(63, 104))
        assert feed.server.http.get(feed.path).json()["first-sequence-id"] == 63


def damaged(server: ServerProcess, text: bytes) -> None:
    """Stop the server, and change a byte of the text wherever the journal has it."""
    server.stop()
    for path in segments(server.data_dir):
        data = path.read_bytes()
        if (at := data.find(text)) >= 0:
            start = data.rfind(b"HRFR", 0, at)
            flip(server.data_dir, int.from_bytes(data[start + 8 : start + 16], "little") + at - start)
            return
    raise AssertionError(f"the journal does not have {text!r}")


def test_entries_that_a_repair_skipped_are_read_from_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with serving(tmp_path / "server", args=("--segment-size", "4k")) as server:
        feed = Feed(server, "f::1")
        assert feed.register().status_code == 200
        for first in range(1, 41, 4):
            post(feed, first, 4)
        archived(feed, archive, 1, 40)
        damaged(server, b'"n":10}')
        words = ["log", "repair", "--skip", "--yes", "--data-dir", str(server.data_dir)]
        forks.run([*forks.HEADRACE, *words], check=True, timeout=60)
        server.start()
        assert feed.register().status_code == 200
        post(feed, 41, 4)

        query = Query(spark, feed, tmp_path, max_entries=10)
        error = failing(query.run)
        assert isinstance(error, SequenceLost)
        assert "the entries 9 to 12 of f::1 were damaged" in error.detail
        assert "option archive, or begin behind them: start 13" in error.detail

        onward = Query(spark, feed, tmp_path / "onward", max_entries=10, archive=archive)
        onward.run()
        assert [number for ids in onward.ids for number in ids] == list(range(1, 45))
        rows = batch(spark, feed, partition_entries=11, archive=archive).collect()
        assert [bytes(row["value"]) for row in rows] == [b'{"n":%d}' % number for number in range(1, 45)]
        behind = batch(spark, feed, start=13).collect()
        assert [row["sequence_id"] for row in behind] == list(range(13, 45))


def test_each_subject_waits_as_a_listener_of_its_own(tmp_path: Path) -> None:
    with secured(tmp_path / "server", Issuer()) as server:
        feed = Feed(server, "f::1")
        assert feed.register().status_code == 200
        endpoints = []
        for subject in ("ann", "bob"):
            token = tmp_path / subject
            token.write_text(server.issuer.token(sub=subject, roles=["listener"], feeds=["*"]))
            endpoints.append(Endpoint(server.url, str(token)))

        def shown() -> list[str]:
            return [one["listener-id"] for one in server.http.get(feed.path).json()["listeners"]]

        for endpoint in endpoints:
            with Connection(endpoint) as connection:
                connection.wait_past({feed.name: 0}, "", 0.2)
                connection.wait_past({feed.name: 0}, "", 0.2)
        assert len(shown()) == 2, "each is registered, so each is told by a long poll"
        with Connection(endpoints[0]) as connection:
            connection.wait_past({feed.name: 0}, "", 0.2)
        assert len(shown()) == 2, "the same after a restart"
