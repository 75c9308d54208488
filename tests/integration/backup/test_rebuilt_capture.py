"""A captured feed whose server was rebuilt: the place in the binlog is not in an archive, so capture stops and says so."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.backup.agents import backup
from tests.integration.capture.commands import TIMEOUT_S, Capture
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.rebuilding import rebuilt_in_place
from tests.servers import Feed, serving
from tests.waiting import wait_until


def test_capture_stops_and_begins_anew_in_a_feed_of_its_own(tmp_path: Path) -> None:
    """While it runs, and when it is started again: it never goes on behind a loss."""
    with Server(*CAPTURE_OPTIONS) as mariadb, serving(tmp_path / "server", grpc=True) as server:
        database = mariadb.create_captured("shop")
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, x VARCHAR(20))")
        database.sql("INSERT INTO t VALUES (1, 'one')")
        capture = Capture(tmp_path, database, server, 'watermark-idle-interval = "1s"')
        feed = Feed(server, capture.feed)

        def ids(of: Feed) -> list[str]:
            if server.http.get(of.path).status_code != 200:
                return []
            rows = [one for one in of.entries() if "control" not in one]
            return sorted(one["changes"]["data"]["id"] for one in rows)

        running = capture.start("run")
        try:
            wait_until(lambda: ids(feed) == ["1"], TIMEOUT_S, what="the copy")
            backup(server, tmp_path / "archive")
            database.sql("INSERT INTO t VALUES (2, 'lost')")
            wait_until(lambda: ids(feed) == ["1", "2"], TIMEOUT_S, what="the change")
            server.kill()
            shutil.rmtree(server.data_dir)
            rebuilt_in_place(tmp_path / "archive", server.data_dir)
            server.start()
            _, said = running.communicate(timeout=TIMEOUT_S)
        finally:
            running.kill()
        assert running.returncode == 3, said
        assert "code: feed-" in said, said
        assert ids(feed) == ["1"]
        code, _, said = capture.run("run")
        assert (code, "code: feed-unfit" in said, "Name a feed of its own" in said) == (3, True, True), said
        assert ids(feed) == ["1"], "nothing was appended behind the loss"
        capture.config.write_text(capture.config.read_text().replace(capture.feed, "anew"))
        running = capture.start("run")
        try:
            wait_until(lambda: ids(Feed(server, "anew")) == ["1", "2"], TIMEOUT_S, what="the new copy")
        finally:
            running.kill()
            running.communicate(timeout=TIMEOUT_S)
