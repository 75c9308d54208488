"""``examples/mirror_table.py`` killed again and again: its table is what the feed comes to, each change counted once."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.integration.examples.test_examples import example
from tests.postgres import Database
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, serving


def test_mirror_over_kills(tmp_path: Path, database: Database) -> None:
    rng = random.Random(SEED)
    wanted: dict[str, dict[str, int]] = {}
    with serving(tmp_path) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        total = 0
        for life in range(scaled(sized(2, soak=4))):
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


def test_mirror_of_a_table_that_was_emptied(tmp_path: Path, database: Database) -> None:
    """TRUNCATE comes as a control entry; numbers that no float holds keep their digits."""
    put = '{"agent-id": "agent-1", "key": "%s", "table": ["app", "%s"], "changes": %s}'
    state = '{"n": 12345678901234567890.12345}'
    control = '{"agent-id": "agent-1", "key": "\\u0000t", "control": "truncate", "changes": {"database":"app","table":"a"}}'
    with serving(tmp_path) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        a1, b1, a2, a3 = (put % (key, key[0], state) for key in ("a1", "b1", "a2", "a3"))
        answer = feed.post_raw(f'{{"entries": [{a1}, {b1}, {a2}, {control}, {a3}]}}'.encode())
        assert answer.status_code == 200, answer.text
        with example(tmp_path / "run", "mirror_table.py", server.url, "--dsn", database.dsn, "--once") as run:
            run.finish()
    rows = database.sql("SELECT key, of_table, state FROM mirror ORDER BY key")
    assert rows == [("a3", ["app", "a"], state), ("b1", ["app", "b"], state)]
