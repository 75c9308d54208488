"""agent.toml and DSNs: where they come from, what is refused by name, and that a DSN never shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from headrace.errors import ConfigInvalid, DsnInvalid
from headrace.publisher.databases import open_source
from headrace.publisher.settings import AgentSettings, load_agent_settings
from headrace.publisher.sqlite.connection import connect, path_of
from headrace.runtime.dsn import find_dsn, parse_dsn

GOOD = 'agent-id = "a1"\nfeeds = ["shop", "vmapi::vm"]\n'


def load(tmp_path: Path, text: str) -> AgentSettings:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return load_agent_settings(path)


def test_least_settings(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert (settings.agent_id, settings.feeds, settings.retention_s) == (
        "a1",
        ("shop", "vmapi::vm"),
        48 * 3600,
    )
    assert settings.find_server({}) == "http://127.0.0.1:8470"
    assert settings.find_server({"HEADRACE_SERVER": "http://other:1"}) == "http://other:1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD + 'colour = "red"\n', "colour"),
        ('feeds = ["shop"]\n', "agent-id"),
        ('agent-id = "a1"\nfeeds = []\n', "feeds"),
        ('agent-id = "a1"\nfeeds = ["a", "a"]\n', "feeds"),
        ('agent-id = "a 1"\nfeeds = ["a"]\n', "agent-id"),
        ('agent-id = "a1"\nfeeds = ["a b"]\n', "change-feed-id"),
        ('agent-id = "a1"\nfeeds = "shop"\n', "feeds"),
        (GOOD + 'retention = "two days"\n', "retention"),
        (GOOD + 'server-timeout = "0s"\n', "server-timeout"),
        (GOOD + 'server-timeout = "soon"\n', "server-timeout"),
        (GOOD + 'dsn = "sqlite:///a.db"\ndsn-file = "b"\n', "dsn-file"),
        ("agent-id = ", "not TOML"),
    ],
)
def test_wrong_key_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named) as caught:
        load(tmp_path, text)
    assert caught.value.exit_code == 2


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="can't be read"):
        load_agent_settings(tmp_path / "missing.toml")
    settings = load(tmp_path, GOOD + 'token-file = "missing"\n')
    with pytest.raises(ConfigInvalid, match="missing"):
        settings.find_credential()


def test_dsn_never_shows(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD + 'dsn = "sqlite:///secret.db"\n')
    console = Console(record=True, width=200)
    console.print(settings)
    dsn = settings.find_dsn({})
    for text in (repr(settings), str(settings), console.export_text(), repr(dsn), str(dsn)):
        assert "secret" not in text


def test_dsn_comes_from_the_settings_then_the_environment(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text("sqlite:///file.db\n")
    environment = {"HEADRACE_DSN": "sqlite:///environment.db"}
    assert find_dsn("sqlite:///given.db", None, environment).rest == "/given.db"
    assert find_dsn(None, tmp_path / "dsn", environment).rest == "/file.db"
    assert find_dsn(None, None, environment).rest == "/environment.db"
    with pytest.raises(DsnInvalid, match="no source"):
        find_dsn(None, None, {})
    with pytest.raises(ConfigInvalid, match="both"):
        find_dsn("sqlite:///given.db", tmp_path / "dsn", {})
    with pytest.raises(ConfigInvalid, match="dsn-file"):
        find_dsn(None, tmp_path / "missing", {})


@pytest.mark.parametrize(
    "text", ["app.db", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/a"]
)
def test_malformed_dsn(text: str) -> None:
    with pytest.raises(DsnInvalid) as caught:
        path_of(parse_dsn(text))
    assert text not in caught.value.detail


def test_unknown_database() -> None:
    with pytest.raises(DsnInvalid, match="oracle") as caught:
        open_source(parse_dsn("oracle://scott:tiger@host"))
    assert "tiger" not in caught.value.detail
    assert "sqlite://" in caught.value.advice


def test_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to have a header of its own, and then some more" * 20)
    before = path.read_bytes()
    with pytest.raises(DsnInvalid, match=r"notes\.txt"):
        connect(path)
    assert path.read_bytes() == before


def test_odd_file_names_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20é.db"
    path.touch()
    connect(path_of(parse_dsn(f"sqlite:///{path}"))).close()
