"""The keys of agent.toml about snapshots: what they mean, and what is refused by name before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigInvalid, ServerUnreachable
from headrace.publisher.feed_server import decode_key
from headrace.publisher.settings import AgentSettings, load_agent_settings
from headrace.publisher.snapshot.settings import Address, check_reach

GOOD = 'agent-id = "a1"\nfeeds = ["shop"]\n'
LISTEN = GOOD + 'snapshot-listen = "127.0.0.1:8480"\n'


def load(tmp_path: Path, text: str) -> AgentSettings:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return load_agent_settings(path)


def test_without_an_address_no_snapshot_is_served(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).find_snapshots() is None


def test_least_settings(tmp_path: Path) -> None:
    found = load(tmp_path, LISTEN).find_snapshots()
    assert found is not None
    assert (found.listen, found.url, found.interval_s, found.max_age_s) == (
        Address("127.0.0.1", 8480),
        None,
        None,
        600,
    )
    assert (found.bytes_max, found.kept_s, found.token, found.tls) == (10 << 30, 3600, None, None)


def test_snapshot_made_on_an_interval_is_for_who_comes_before_the_next(tmp_path: Path) -> None:
    found = load(tmp_path, LISTEN + 'snapshot-interval = "6h"\n').find_snapshots()
    assert found is not None
    assert found.interval_s == found.max_age_s == found.kept_s == 6 * 3600


def test_token_never_shows(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-this-agent-alone\n")
    found = load(tmp_path, LISTEN + f'snapshot-token-file = "{tmp_path}/token"\n').find_snapshots()
    assert found is not None
    assert found.token == "of-this-agent-alone"
    assert "of-this-agent" not in repr(found)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD + 'snapshot-url = "https://a/snapshot"\n', "snapshot-listen"),
        (GOOD + 'snapshot-interval = "6h"\n', "snapshot-listen"),
        (GOOD + 'snapshot-listen = "127.0.0.1"\n', "snapshot-listen"),
        (GOOD + 'snapshot-listen = "::1:80"\n', "snapshot-listen"),
        (LISTEN + 'snapshot-url = "agent:8480"\n', "snapshot-url"),
        (LISTEN + 'snapshot-url = "https://agent:8480"\n', "snapshot-url"),
        (LISTEN + 'snapshot-url = "https://me:secret@agent/snapshot"\n', "snapshot-url"),
        (LISTEN + 'snapshot-url = "https://agent/snapshot?a=b"\n', "snapshot-url"),
        (LISTEN + 'snapshot-max-age = "1s"\n', "snapshot-max-age"),
        (LISTEN + 'snapshot-interval = "0s"\n', "snapshot-interval"),
        (LISTEN + 'snapshot-bytes-max = "0"\n', "snapshot-bytes-max"),
        (LISTEN + 'snapshot-tls-cert = "a.crt"\n', "snapshot-tls-key"),
        (LISTEN + '[snapshot-sql]\nanother = "SELECT 1"\n', "snapshot-sql: another"),
        (LISTEN + 'snapshot-colour = "red"\n', "snapshot-colour"),
    ],
)
def test_wrong_key_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        load(tmp_path, text)


def test_other_machines_need_tls_or_a_word(tmp_path: Path) -> None:
    open_to_all = GOOD + 'snapshot-listen = "0.0.0.0:8480"\n'
    found = load(tmp_path, open_to_all).find_snapshots()
    assert found is not None
    with pytest.raises(ConfigInvalid, match="no TLS"):
        check_reach(found)
    for more in ("snapshot-insecure = true\n", 'snapshot-tls-cert = "a.crt"\nsnapshot-tls-key = "a.key"\n'):
        found = load(tmp_path, open_to_all + more).find_snapshots()
        assert found is not None
        check_reach(found)


@pytest.mark.parametrize("padding", ["", "="])
def test_ticket_key_is_32_bytes_in_base64url(padding: str) -> None:
    assert decode_key("-_" + "A" * 40 + "8" + padding)[:1] == b"\xfb"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 44, "ä" * 43, "!" * 43])
def test_anything_else_is_no_ticket_key(text: str) -> None:
    with pytest.raises(ServerUnreachable):
        decode_key(text)
