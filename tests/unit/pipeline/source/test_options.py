"""The source's options: one that is wrong is named."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.errors import InvalidRequest
from headrace.pipeline.source.options import FEEDS_MAX, Options
from headrace.pipeline.wal.options import Options as WalOptions


def options(*, streaming: bool = True, **given: str) -> Options:
    named = {name.replace("_", "-"): value for name, value in ({"feeds": "f::1"} | given).items()}
    return Options(named, streaming=streaming)


def test_what_is_given_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", "http://127.0.0.1:1")
    given = options(FEEDS="b, a", start="head", max_entries="5", archive="/wal")
    assert (given.feeds, given.start, given.limits.entries) == (("a", "b"), "head", 5)
    assert given.endpoint.server == "http://127.0.0.1:1"
    assert given.archive() is not None
    assert options().archive() is None
    assert options(endpoint="http://127.0.0.1:2").endpoint.server == "http://127.0.0.1:2"
    assert pickle.loads(pickle.dumps(given)).feeds == given.feeds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"feeds": ""}, "needs the option feeds"),
        ({"feeds": "a,,b"}, "not a valid name"),
        ({"feeds": "a,a"}, "2 names; take 1 to"),
        ({"feeds": ",".join(f"f{number}" for number in range(FEEDS_MAX + 1))}, "51 names; take 1 to 50"),
        ({"server": "http://h"}, "has no option 'server'; its options are .*endpoint"),
        ({"end": "7"}, "the option 'end' is for batch reads only"),
        ({"start": "yesterday"}, "option start: 'yesterday' is not"),
        ({"feeds": "a,b", "start": "7"}, "each feed counts its own sequence ids"),
        ({"feeds": "a,b", "incarnation": "i"}, "are those of one feed"),
        ({"lsn": "7"}, "not an LSN"),
        ({"listener": "a b"}, "listener: .* not a valid name"),
        ({"max-entries": "0"}, "max-entries must be a number from 1 up"),
        ({"max-bytes": "1e9"}, "max-bytes must be a number from 1 up"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Options({"feeds": "f::1"} | given, streaming=True)


def test_what_is_for_streams_is_refused_by_a_batch_read() -> None:
    with pytest.raises(InvalidRequest, match="the option 'listener' is for streams only"):
        options(streaming=False, listener="me")
    with pytest.raises(InvalidRequest, match="nothing ends at the oldest entry"):
        options(streaming=False, end="oldest")
    assert options(streaming=False, end="9").end_moment() == 9


def test_relative_paths_are_those_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    given = options(token_file="token", ca_file="tls/ca.pem", archive="./wal")
    assert (given.endpoint.token_file, given.endpoint.ca_file) == (
        f"{tmp_path}/token",
        f"{tmp_path}/tls/ca.pem",
    )
    assert given.archive_url == f"{tmp_path}/wal"
    assert options(archive="~/wal").archive_url == "/home/me/wal"
    for elsewhere in ("s3://bucket/wal", "zip://wal::s3://bucket/all.zip", "file:///wal", ""):
        assert options(archive=elsewhere).archive_url == elsewhere
        if elsewhere:
            assert WalOptions({"path": elsewhere}).path == elsewhere
    assert WalOptions({"path": "wal"}).path == f"{tmp_path}/wal"
    assert WalOptions({"path": "wal", "identity": "key"}).identity == f"{tmp_path}/key"
    assert (options().endpoint.token_file, options().endpoint.ca_file) == ("", "")
