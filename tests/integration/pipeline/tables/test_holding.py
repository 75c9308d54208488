"""Retention waits for what Spark would read again, not for what is published alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.tables.holding import Holding, listener_of
from headrace.pipeline.tables.ledger import Ledger, read_published
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.source_tables import ID, SourceTables


def place_told(source: SourceTables, to: str) -> int:
    """Where the listener of these tables holds, once a new process has told it."""
    server, name = source.feed.server, source.feed.name
    incarnation = server.http.get(f"/feeds/{name}").json()["incarnation"]
    ledger = Ledger(Path(to), name, incarnation)
    try:
        with Connection(Endpoint(server.url, retry_s=20.0)) as connection:
            Holding(connection, ledger, str(Path(to) / "_headrace" / "checkpoint")).tell()
        listeners = server.http.get(f"/feeds/{name}").json()["listeners"]
        found = next(one for one in listeners if one["listener-id"] == listener_of(ledger))
        assert found["hold"]
        return int(found["sequence-id"])
    finally:
        ledger.close()


def test_a_batch_that_is_published_and_not_noted_as_done_is_held(
    source: SourceTables, to: str, run: Run, tmp_path: Path
) -> None:
    source.schema("t", ID)
    source.put("t", {"id": 1})
    first = source.commit()
    run()
    source.put("t", {"id": 2})
    second = source.commit()
    run()
    published = read_published(Path(to))
    assert published is not None
    assert published.sequence_id == second == place_told(source, to)
    # As if the job was killed while it removed old files, behind the publish. A folder elsewhere has a listener of its own.
    cut = str(shutil.copytree(to, tmp_path / "cut"))
    commits = Path(cut) / "_headrace" / "checkpoint" / "commits"
    last = str(max(int(one.name) for one in commits.iterdir() if one.name.isdigit()))
    for name in (last, f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    assert place_told(source, cut) == first
