"""``examples/mirror_table.py`` killed again and again: its table is what the feed comes to, each change counted once."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.integration.examples.test_examples import example
from tests.postgres import Database
from tests.scale import scaled
from tests.servers import Feed, serving


def test_mirror_over_kills(tmp_path: Path, database: Database) -> None:
    rng = random.Random(7)
    wanted: dict[str, dict[str, int]] = {}
    with serving(tmp_path) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        total = 0
        for life in range(scaled(4)):
            for _ in range(5):
                entries = []
                for _ in range(40):
                    total += 1
                    key, member = rng.choice("abcde"), rng.choice("xyz")
                    entries.append({"key": key, "op": "patch", "changes": {member: total}})
                    wanted.setdefault(key, {})[member] = total
                assert feed.post(*entries).status_code == 200
            with example(
                tmp_path / f"life-{life}", "mirror_table.py", server.url, "--dsn", database.dsn
            ) as run:
                run.wait_for(r"mirrored up to")
                run.kill()
        with example(
            tmp_path / "last", "mirror_table.py", server.url, "--dsn", database.dsn, "--once"
        ) as run:
            run.finish()
    rows = database.sql("SELECT key, state FROM mirror")
    assert {key: json.loads(state) for key, state in rows} == wanted
    assert database.sql("SELECT changes FROM mirror_count") == [(total,)]
