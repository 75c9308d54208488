"""Settings from TOML: frozen values; what is wrong is named by file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigInvalid
from headrace.runtime.settings import Settings, load_toml, parse_duration


class Inner(Settings, frozen=True):
    """A group."""

    bytes_max: int = 5


class Outer(Settings, frozen=True):
    """A file."""

    agent_id: str
    feeds: tuple[str, ...] = ()
    limits: Inner = Inner()


def load(tmp_path: Path, text: str | bytes) -> Outer:
    path = tmp_path / "agent.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_toml(path, Outer)


def test_keys_have_hyphens(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'agent-id = "a"\nfeeds = ["x"]\n[limits]\nbytes-max = 7\n')
    assert loaded == Outer(agent_id="a", feeds=("x",), limits=Inner(bytes_max=7))
    with pytest.raises(AttributeError):
        loaded.agent_id = "b"  # type: ignore[misc]  # that is the test


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "agent-id"),
        ('agent-id = "a"\nretries = 3', "retries"),
        ('agent_id = "a"', "agent_id|agent-id"),
        ("agent-id = 5", r"\$\.agent-id"),
        ('agent-id = "a"\n[limits]\nbytes-max = "5"', r"limits\.bytes-max"),
        ("agent-id = ", "not TOML"),
        (b'agent-id = "\xff"', "can't be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named) as refusal:
        load(tmp_path, text)
    assert "agent.toml" in refusal.value.detail
    assert refusal.value.exit_code == 2


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="can't be read"):
        load_toml(tmp_path / "none.toml", Outer)
    with pytest.raises(ConfigInvalid, match="can't be read"):
        load_toml(tmp_path, Outer)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("48h", 172800), ("2d", 172800), (" 1s ", 1)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "retention") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1w", "1 h", "1h30m", "1e3s", "٣s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="retention"):
        parse_duration(text, "retention")
