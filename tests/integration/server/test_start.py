"""What keeps a server from starting: three lines that say so, the exit code, and nothing written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import google_crc32c

from headrace.wire.mark import SLOT_SIZE
from tests import forks
from tests.servers import ServerProcess, serving

SECONDS_MAX = 60


def headrace(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end. What an interpreter of its own does is seen at the ready line's."""
    return forks.run([*forks.HEADRACE, *words], capture_output=True, text=True, timeout=SECONDS_MAX)


def refused(done: subprocess.CompletedProcess[str], code: str, exit_code: int) -> str:
    """Check that the command told error, code and hint, and return the error."""
    lines = done.stderr.splitlines()
    assert done.returncode == exit_code, done.stderr
    assert [line.partition(":")[0] for line in lines[-3:]] == ["error", "code", "hint"]
    assert lines[-2] == f"code: {code}"
    assert "Traceback" not in done.stderr
    return lines[-3]


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = headrace("serve", "--http", address, "--data-dir", str(tmp_path / "data"))
    assert address in refused(done, "port-in-use", 1)
    assert not (tmp_path / "data").exists()


def test_grpc_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = headrace(
            "serve", "--http", "127.0.0.1:0", "--grpc", address, "--data-dir", str(tmp_path / "data")
        )
    assert address in refused(done, "port-in-use", 1)
    assert "--grpc" in done.stderr
    assert not (tmp_path / "data").exists()


def test_grpc_address_that_others_can_reach_needs_insecure(tmp_path: Path) -> None:
    done = headrace(
        "serve", "--http", "127.0.0.1:0", "--grpc", "0.0.0.0:0", "--data-dir", str(tmp_path / "data")
    )
    assert "0.0.0.0" in refused(done, "usage", 2)
    assert not (tmp_path / "data").exists()


def test_grpc_address_that_is_none(tmp_path: Path) -> None:
    refused(headrace("serve", "--http", "127.0.0.1:0", "--grpc", "8471"), "usage", 2)


def test_data_folder_locked_by_another_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        done = headrace("serve", "--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(server.data_dir))
        assert str(server.data_dir) in refused(done, "data-folder-locked", 3)


def test_data_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = headrace("serve", "--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(tmp_path / "file"))
    assert str(tmp_path / "file") in refused(done, "store-unavailable", 1)


def test_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    running = ServerProcess(tmp_path)
    running.start()
    running.stop()
    mark = running.data_dir / "mark"
    before = {
        path: path.read_bytes() for path in running.data_dir.rglob("*") if path.is_file() and path != mark
    }
    newer = bytearray(mark.read_bytes())
    _raise_version(newer)
    mark.write_bytes(newer)
    done = headrace("serve", "--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(running.data_dir))
    refused(done, "format-too-new", 3)
    assert mark.read_bytes() == newer
    assert {path: path.read_bytes() for path in before} == before


def test_address_that_others_can_reach_needs_insecure(tmp_path: Path) -> None:
    done = headrace("serve", "--http", "0.0.0.0:0", "--data-dir", str(tmp_path / "data"))
    assert "0.0.0.0" in refused(done, "usage", 2)
    assert "--insecure" in done.stderr
    assert not (tmp_path / "data").exists()


def test_insecure_says_so_and_serves(tmp_path: Path) -> None:
    running = ServerProcess(tmp_path, args=["--insecure"])
    running.address = "0.0.0.0:0"
    running.start()
    assert running.stop() == 0
    assert "--insecure" in running.errors()


def test_address_that_is_none(tmp_path: Path) -> None:
    refused(headrace("serve", "--http", "8470"), "usage", 2)


def test_unknown_option_and_command_are_usage_errors() -> None:
    assert "--htp" in refused(headrace("serve", "--htp", "x"), "usage", 2)
    assert "sevre" in refused(headrace("sevre"), "usage", 2)


def test_json_error_is_one_document_on_stdout() -> None:
    done = headrace("serve", "--http", "8470", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["code"] == "usage"
    assert done.stderr == ""


def test_ready_line_names_address_and_folder(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    command = [
        sys.executable,
        "-m",
        "headrace.cli.app",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--data-dir",
        str(data_dir),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert process.returncode == 0
    assert line.startswith("serving http://127.0.0.1:")
    assert ", grpc 127.0.0.1:" in line
    assert line.rstrip().endswith(f"data in {data_dir}")


def _raise_version(mark: bytearray) -> None:
    """Make both slots of a mark say that only a newer program reads them, checksums included."""
    for at in (0, SLOT_SIZE):
        mark[at + 4 : at + 6] = b"\x63\x63"
        checksum = int(google_crc32c.value(bytes(mark[at : at + SLOT_SIZE - 4])))
        mark[at + SLOT_SIZE - 4 : at + SLOT_SIZE] = checksum.to_bytes(4, "little")
