"""The first base of an archive that began late: what is missing comes from the publisher's snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.archive.files.bases import read_bases
from headrace.archive.files.folder import Folder
from headrace.backup.verifying.archive_check import verify
from headrace.errors import SegmentGap, TargetUnreachable
from headrace.pipeline.bases.making import BaseTerms, make_base
from headrace.pipeline.bases.publishers import Publishers
from headrace.pipeline.bases.reading import base_frame
from headrace.pipeline.connection import Endpoint
from tests import forks
from tests.integration.pipeline.bases.archives import segments_frame, values_of
from tests.integration.pipeline.tables.forgetful_source import Source, serving_snapshots
from tests.servers import Feed
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[Source]:
    """A source with an agent that serves snapshots, and a server that soon forgets."""
    with serving_snapshots(spark, tmp_path, grpc=True) as made:
        yield made


def back_up(source: Source, archive: Path, *more: str) -> None:
    words = ["wal", "backup", "--pitr-dir", str(archive), "--once", *more]
    places = ["--server", source.server.url, "--grpc", source.server.grpc_address]
    done = forks.run(
        [*forks.HEADRACE, *words, *places],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def at_source(source: Source) -> dict[str, list[tuple[object, ...]]]:
    with application(source.path) as app:
        return {name: sorted(app.execute(f"SELECT * FROM {name}").fetchall()) for name in ("item", "note")}


def in_archive(values: dict[tuple[str, bytes], bytes]) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {"item": [], "note": []}
    for (_, key), value in values.items():
        found[json.loads(key)[1]].append(tuple(json.loads(value).values()))
    return {name: sorted(rows) for name, rows in found.items()}


def test_a_base_that_begins_with_a_snapshot(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    archive = tmp_path / "wal"
    source.fill(1, 20)
    source.settle()
    source.forget_beginning()
    back_up(source, archive)  # there may be nothing to archive, but from now on retention waits for it
    source.fill(2000, 2003)
    source.settle()
    back_up(source, archive)
    with pytest.raises((TargetUnreachable, SegmentGap)):
        make_base(spark, str(archive))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source.fill(3000, 3003)
    source.settle()
    with pytest.raises(SegmentGap, match="is not in the archive"):
        make_base(spark, str(archive), publishers=Publishers(Endpoint(source.server.url), scratch, wait_s=0))
    back_up(source, archive)
    terms = BaseTerms(buckets=1)
    made = make_base(spark, str(archive), terms, publishers=Publishers(Endpoint(source.server.url), scratch))
    (base,) = read_bases(Folder(str(archive))).sound
    assert base.manifest == made.base.manifest
    frame = base_frame(spark, str(archive), base)
    assert in_archive(values_of(frame)) == at_source(source)
    assert sorted(row["control"] for row in frame.where("control IS NOT NULL").collect()) == ["schema"] * 3
    source.sql("DELETE FROM item WHERE id = 1", "UPDATE note SET id = -5 WHERE id = 2")
    source.fill(4000, 4002)
    source.settle()
    back_up(source, archive)
    rest = segments_frame(spark, archive, base.lsn)
    assert in_archive(values_of(frame.unionByName(rest))) == at_source(source)
    assert verify(str(archive)).findings == []
    # A feed that had no entry since another archive began is missing there, too; this one's publisher has no snapshots.
    quiet = Feed(source.server, "quiet")
    quiet.register()
    assert quiet.post({"changes": {"uuid": "a"}}).status_code == 200
    source.fill(5000, 5010)
    source.settle()
    back_up(source, archive)

    def is_gone() -> bool:
        return int(source.server.http.get("/feeds/quiet").json()["oldest-sequence-id"]) > 1

    wait_until(is_gone, 60, what="retention to drop the quiet feed's entry")
    late = tmp_path / "late"
    back_up(source, late, "--subscriber-id", "late")
    source.fill(6000, 6003)
    source.settle()
    back_up(source, late, "--subscriber-id", "late")
    with pytest.raises(SegmentGap, match="quiet"):
        make_base(spark, str(late), publishers=Publishers(Endpoint(source.server.url), scratch))
