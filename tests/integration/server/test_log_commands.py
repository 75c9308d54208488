"""``headrace log verify``, ``dump`` and ``repair`` on a real server's folder: what they print, and their exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.fault.journals import flip, segments
from tests.servers import Feed, ServerProcess, changes, code_of, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with two feeds of ten entries each."""
    with serving(tmp_path, args=["--segment-size", "4k"]) as running:
        for name in ("shop", "other"):
            feed = Feed(running, name)
            feed.register()
            feed.listener()
            for number in range(1, 11):
                assert feed.post({"changes": changes(number)}).status_code == 200
        yield running


def log(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*forks.HEADRACE, "log", *words, "--data-dir", str(server.data_dir)]
    return forks.run(command, capture_output=True, text=True, timeout=60, check=False)


def document(server: ServerProcess, *words: str, code: int = 0) -> Any:
    done = log(server, *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def damage(server: ServerProcess, feed: str, sequence_id: int) -> int:
    """Stop the server and damage the frame that holds this entry, in its body; returns its position."""
    server.stop()
    for path in segments(server.data_dir):
        data = path.read_bytes()
        wanted = f'"object-{sequence_id}"'.encode()
        at = data.find(wanted)
        while at >= 0:
            if f":{feed}:".encode() in data[data.rfind(b"HRFR", 0, at) : data.find(b"HRFR", at)]:
                start = data.rfind(b"HRFR", 0, at)
                position = int.from_bytes(data[start + 8 : start + 16], "little")
                flip(server.data_dir, position + at - start)
                return position
            at = data.find(wanted, at + 1)
    raise AssertionError(f"the entry {sequence_id} of {feed} was not found")


def test_sound_log_of_a_running_server(server: ServerProcess) -> None:
    found = document(server, "verify")
    assert found["whole"] is True
    assert found["entries"] == 20
    assert found["segments"] > 1
    assert document(server, "verify", "shop")["whole"] is True
    lines = log(server, "dump", "shop").stdout.splitlines()
    assert [json.loads(line) for line in lines] == Feed(server, "shop").entries()
    assert [
        entry["sequence-id"]
        for entry in document(server, "dump", "shop", "--from", "4", "--limit", "3")["entries"]
    ] == [4, 5, 6]
    refused = document(server, "repair", code=3)
    assert refused["code"] == "data-folder-locked"


def test_bad_input(server: ServerProcess) -> None:
    assert document(server, "dump", "nobody", code=1)["code"] == "feed-not-found"
    assert document(server, "verify", "nobody", code=1)["code"] == "feed-not-found"
    assert document(server, "dump", "shop", "--limit", "0", code=2)["code"] == "usage"
    server.stop()
    assert document(server, "repair", "--skip", "--cut", code=2)["code"] == "usage"
    server.data_dir = server.folder / "nowhere"
    for words, code in ((["verify"], 1), (["dump", "shop"], 1), (["repair"], 2)):
        done = log(server, *words)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
    assert not server.data_dir.exists(), "looking makes nothing"


def test_damage_is_shown_and_skipped(server: ServerProcess) -> None:
    position = damage(server, "shop", 5)
    found = document(server, "verify", code=1)
    (one,) = found["damages"]
    assert (one["kind"], one["feed"], one["position"]) == ("frame-payload", "shop", position)
    assert (one["first-sequence-id"], one["last-sequence-id"]) == (5, 5)
    assert document(server, "verify", "other")["whole"] is True
    dumped = log(server, "dump", "shop")
    assert dumped.returncode == 3
    assert len(dumped.stdout.splitlines()) == 4
    assert f"{position:#x}" in dumped.stderr
    assert len(log(server, "dump", "shop", "--from", "6").stdout.splitlines()) == 5

    assert log(server, "repair").returncode == 1, "that needs a decision"
    planned = document(server, "repair", "--skip")
    assert planned["done"] is False
    assert document(server, "verify", code=1)["damages"] == found["damages"], "a plan changes nothing"
    repaired = document(server, "repair", "--skip", "--yes")
    assert repaired["lost"] == {"shop": [[5, 5]]}
    assert repaired["new-incarnations"] == ["shop"]
    assert repaired["damages-left"] == 0
    assert document(server, "verify")["whole"] is True
    assert list(server.data_dir.glob("removed-*.bin"))
    check_skipped(server)


def check_skipped(server: ServerProcess) -> None:
    server.start()
    shop, other = Feed(server, "shop"), Feed(server, "other")
    assert len(other.entries()) == 10
    assert [entry["sequence-id"] for entry in shop.entries(1)] == [1, 2, 3, 4]
    lost = shop.read(5)
    assert (lost.status_code, code_of(lost)) == (410, "sequence-lost")
    assert (lost.json()["lost-first"], lost.json()["lost-last"]) == (5, 5)
    assert code_of(shop.poll(after=4)) == "sequence-lost"
    assert [entry["sequence-id"] for entry in shop.entries(6)] == [6, 7, 8, 9, 10]
    assert shop.post({"changes": changes(11), "expected-offset": 11}).status_code == 200
    (alarm,) = server.http.get("/alarms").json()["alarms"]
    assert (alarm["code"], alarm["change-feed-id"]) == ("sequence-lost", "shop")
    assert alarm["cleared-at"], "somebody decided that; it is there to be seen"


def test_reader_with_a_bookmark_finds_out(server: ServerProcess) -> None:
    incarnation = Feed(server, "shop").read().json()["incarnation"]
    damage(server, "shop", 10)
    assert log(server, "repair", "--cut", "--yes").returncode == 0
    server.start()
    told = Feed(server, "shop").poll(after=9, headers={"Headrace-Incarnation": incarnation})
    assert code_of(told) == "feed-recreated"
    assert len(Feed(server, "shop").entries()) == 9


def test_damaged_row_beside_the_journal_is_shown_and_removed(server: ServerProcess) -> None:
    server.stop()
    path = server.data_dir / "metadata.sqlite3"
    data = path.read_bytes()
    at = data.rfind(b"shop", 0, data.rfind(b"listener-1shop") + 20)
    path.write_bytes(data[:at] + b"shoq" + data[at + 4 :])
    (damage,) = document(server, "verify", code=1)["damages"]
    assert (damage["kind"], damage["file"]) == ("metadata", str(path))
    assert "table listener, key (" in damage["detail"]
    planned = document(server, "repair")
    assert ["remove the row" in step for step in planned["steps"]] == [True]
    assert len(document(server, "verify", code=1)["damages"]) == 1, "a plan changes nothing"
    assert document(server, "repair", "--yes")["damages-left"] == 0
    assert document(server, "verify")["whole"] is True
    server.start()
    assert server.http.get("/alarms").json()["alarms"] == []
    assert code_of(Feed(server, "shop").poll(after=0)) == "not-registered"
    assert len(Feed(server, "other").poll(after=0).json()["changes-list"]) == 10


def test_damaged_metadata_is_shown(server: ServerProcess) -> None:
    server.stop()
    path = server.data_dir / "metadata.sqlite3"
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 64):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    found = document(server, "verify", code=1)
    assert {one["kind"] for one in found["damages"]} == {"metadata"}
    assert str(path) in found["damages"][0]["detail"]
    assert "move the file away" in log(server, "repair").stdout
    assert log(server, "repair", "--yes").returncode == 1
