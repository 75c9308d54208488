"""A client generated from the RFC's proto, as printed there, works: it subscribes, acks, asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from tests.integration.grpc.conftest import registered
from tests.servers import ServerProcess

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"--python_out={folder}"]
    subprocess.run([*command, f"--grpc_python_out={folder}", "rfc010.proto"], check=True)
    return folder


def run(stubs: Path, server: ServerProcess, start_lsn: str, entries: int) -> Any:
    words = [sys.executable, str(HERE / "rfc_client.txt"), server.grpc_address, start_lsn, str(entries)]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(stubs)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_client_of_the_rfc_reads_everything_as_the_rfc_says(own: ServerProcess, stubs: Path) -> None:
    feed = registered(own, "rfc::feed")
    feed.post(*({"changes": {"uuid": f"o-{number}", "number": number}} for number in range(1, 6)))
    feed.post(
        {"changes": {"uuid": "o-1"}, "op": "delete"}, {"changes": {"n": 1}, "op": "patch", "key": "o-2"}
    )
    said = run(stubs, own, "", 7)
    stored = feed.entries()
    assert [entry["lsn"] for entry in said["entries"]] == [entry["lsn"] for entry in stored]
    assert [entry["key"] for entry in said["entries"]] == ["o-1", "o-2", "o-3", "o-4", "o-5", "o-1", "o-2"]
    assert [entry["op"] for entry in said["entries"]] == [0, 0, 0, 0, 0, 1, 0]
    for entry, kept in zip(said["entries"], stored, strict=True):
        assert json.loads(entry["value"]) == kept["changes"]
        assert entry["tenant"] == "default"
        assert entry["prefix"] == "local:default:rfc::feed:"
        assert entry["hlc"] == int(entry["lsn"][:16], 16)
        assert entry["at"] == entry["hlc"] >> 18
        crc = google_crc32c.value(entry["key"].encode() + entry["value"].encode())
        assert entry["checksum"] == f"{crc:08x}"
    assert (said["oldest"], said["head"]) == (stored[0]["lsn"], stored[-1]["lsn"])
    assert said["watermark"] == said["head"]
    assert not said["error"]


def test_a_start_beyond_the_head_is_told_in_words_and_as_a_status(own: ServerProcess, stubs: Path) -> None:
    feed = registered(own)
    feed.post({"changes": {}})
    with pytest.raises(AssertionError, match=f"beyond_head.*head_lsn={feed.entries()[0]['lsn']}"):
        run(stubs, own, "ffffffffffffffff.1.1", 1)
