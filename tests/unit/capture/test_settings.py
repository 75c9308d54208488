"""capture.toml: what it means, what it leaves to defaults and to the environment, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from headrace.capture.settings import (
    CaptureSettings,
    Cascades,
    ChunkSize,
    InitialSnapshot,
    Watermarks,
    load_capture_settings,
)
from headrace.errors import ConfigInvalid, DsnInvalid
from tests.simple_tables import column, table

GOOD = 'feed = "shop"\n'
ORDERS = table("shop.orders", column("id"), column("email", "varchar", length=80), key=("id",))


def load(tmp_path: Path, text: str) -> CaptureSettings:
    path = tmp_path / "capture.toml"
    path.write_text(text)
    return load_capture_settings(path)


def test_least_settings(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert (settings.feed, settings.agent_id, settings.state_dir) == ("shop", "capture", "headrace-capture")
    assert (settings.cascades, settings.initial_snapshot) == (Cascades.REFUSE, InitialSnapshot.WHEN_NEW)
    assert settings.longest_outage_s == 24 * 3600
    assert settings.watermarks == Watermarks(1.0, 10.0)
    assert settings.chunk_size == ChunkSize(5000, 8 << 20)
    assert settings.replica_server_id is None
    selection = settings.find_selection()
    assert selection.captures("shop", "orders")
    assert selection.captures("SHOP", "Orders")
    assert not selection.captures("mysql", "user")
    assert selection.of(ORDERS).whole


def test_all_settings(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        feed = "shop::rows"
        agent-id = "capture-2"
        server = "https://log.example"
        grpc = "https://log.example:8471"
        token-file = "token"
        ca-file = "ca.pem"
        dsn-file = "dsn"
        state-dir = "state"
        tables = ["shop.*", "!shop.tmp_*"]
        case-sensitive = true
        columns = ["shop.orders.email"]
        exclude-columns = ["shop.*.password"]
        mask = ["*.*.email"]
        cascades = "accept"
        initial-snapshot = "never"
        longest-outage = "3d"
        watermark-interval = "500ms"
        watermark-idle-interval = "1m"
        chunk-rows = 100
        chunk-bytes-max = "1m"
        replica-server-id = 4711
        health = "[::1]:8475"
        stalled-after = "5m"
        """,
    )
    assert (settings.cascades, settings.initial_snapshot) == (Cascades.ACCEPT, InitialSnapshot.NEVER)
    assert settings.longest_outage_s == 3 * 24 * 3600
    assert settings.watermarks == Watermarks(0.5, 60.0)
    assert settings.chunk_size == ChunkSize(100, 1 << 20)
    assert (str(settings.health_terms.address), settings.health_terms.stalled_after_s) == (
        "[::1]:8475",
        300.0,
    )
    assert settings.find_server({"HEADRACE_SERVER": "http://other:1"}) == "https://log.example"
    assert settings.find_grpc({"HEADRACE_GRPC": "other:1"}) == "https://log.example:8471"
    selection = settings.find_selection()
    assert selection.captures("shop", "orders")
    assert not selection.captures("shop", "tmp_orders")
    assert not selection.captures("Shop", "orders")
    assert selection.of(ORDERS).masks == (None, "***")


def test_the_environment_names_what_the_file_leaves_out(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert settings.find_server({}) == "http://127.0.0.1:8470"
    assert settings.find_grpc({}) == "127.0.0.1:8471"
    given = {"HEADRACE_SERVER": "http://a:1", "HEADRACE_GRPC": "a:2", "HEADRACE_DSN": "mariadb://u@a/"}
    assert (settings.find_server(given), settings.find_grpc(given)) == ("http://a:1", "a:2")
    assert settings.find_dsn(given).scheme == "mariadb"
    with pytest.raises(ConfigInvalid, match="missing"):
        load(tmp_path, GOOD + 'token-file = "missing"\n').find_credential()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD + 'colour = "red"\n', "colour"),
        ("", "feed"),
        ('feed = "a b"\n', "change-feed-id"),
        (GOOD + 'agent-id = "a b"\n', "agent-id"),
        (GOOD + 'dsn = "mariadb://a/"\ndsn-file = "b"\n', "dsn-file"),
        (GOOD + 'health = "8475"\n', "health"),
        (GOOD + 'stalled-after = "0s"\n', "stalled-after"),
        (GOOD + "tables = []\n", "tables"),
        (GOOD + 'tables = "shop.*"\n', "tables"),
        (GOOD + 'tables = ["shop"]\n', r"'shop'.*schema\.table"),
        (GOOD + 'mask = ["email"]\n', "mask: 'email'"),
        (GOOD + 'exclude-columns = ["shop.orders"]\n', "exclude-columns: 'shop.orders'"),
        (GOOD + 'columns = ["!shop.orders.email"]\n', "columns: '!shop.orders.email'"),
        (GOOD + 'cascades = "allow"\n', "cascades"),
        (GOOD + 'initial-snapshot = "always"\n', "initial-snapshot"),
        (GOOD + 'longest-outage = "a day"\n', "longest-outage"),
        (GOOD + 'longest-outage = "0s"\n', "longest-outage"),
        (GOOD + 'watermark-interval = "10ms"\n', "watermark-interval"),
        (GOOD + 'watermark-interval = "20s"\n', "watermark-idle-interval"),
        (GOOD + "chunk-rows = 0\n", "chunk-rows"),
        (GOOD + 'chunk-bytes-max = "1k"\n', "chunk-bytes-max"),
        (GOOD + "replica-server-id = 0\n", "replica-server-id"),
        (GOOD + "replica-server-id = 4294967296\n", "replica-server-id"),
        (GOOD + 'changefeed = "a"\ntables = ["shop.*"]\n', "tables and changefeed"),
        (GOOD + 'changefeed = "a"\ncase-sensitive = true\n', "case-sensitive and changefeed"),
        ("feed = ", "not TOML"),
    ],
)
def test_wrong_key_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=named) as caught:
        load(tmp_path, text)
    assert caught.value.exit_code == 2


def test_patterns_of_the_command_line_are_added(tmp_path: Path) -> None:
    path = tmp_path / "capture.toml"
    path.write_text(GOOD + 'mask = ["*.*.phone"]\n')
    settings = load_capture_settings(path, columns=("shop.*.email",), mask=("*.*.email",))
    assert (settings.columns, settings.mask) == (("shop.*.email",), ("*.*.phone", "*.*.email"))
    with pytest.raises(ConfigInvalid, match="exclude-columns: 'email'"):
        load_capture_settings(path, exclude_columns=("email",))


def test_changefeed_names_tables_and_columns(tmp_path: Path) -> None:
    changefeed = tmp_path / "changefeed.toml"
    changefeed.write_text(
        "[filter]\nrules = ['shop.*']\n"
        "[sink]\ncolumn-selectors = [{matcher = ['shop.orders'], columns = ['*', '!email']}]\n"
    )
    settings = load(tmp_path, GOOD + f'changefeed = "{changefeed}"\n')
    selection = settings.find_selection()
    assert selection.captures("shop", "orders")
    assert not selection.captures("other", "orders")
    assert selection.of(ORDERS).delivered == (0,)
    changefeed.write_text("[sink]\nprotocol = 'canal-json'\n")
    with pytest.raises(ConfigInvalid, match=r"changefeed\.toml: sink\.protocol"):
        settings.find_selection()
    changefeed.unlink()
    with pytest.raises(ConfigInvalid, match="can't be read"):
        settings.find_changefeed()


@pytest.mark.parametrize("scheme", ["postgresql", "sqlite"])
def test_other_databases_are_not_captured(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(DsnInvalid, match=f"{scheme}://") as caught:
        load(tmp_path, GOOD + f'dsn = "{scheme}://u:secret@db/"\n').find_dsn({})
    assert "secret" not in caught.value.detail


def test_dsn_never_shows(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD + 'dsn = "mariadb://u:secret@db/"\n')
    console = Console(record=True, width=200)
    console.print(settings)
    for text in (repr(settings), str(settings), console.export_text(), repr(settings.find_dsn({}))):
        assert "secret" not in text
