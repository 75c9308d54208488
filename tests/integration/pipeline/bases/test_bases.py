"""Bases made by Spark from archives: what is in them, that a chain of them comes to the same, and what is refused."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.archive.files.bases import files_of, read_base, read_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.files.settling import prepare, put_segment
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.backup.verifying.archive_check import verify
from headrace.entries.entry import Op
from headrace.errors import (
    ArchiveFull,
    BaseCorrupt,
    ControlsTooMany,
    IdentityNeeded,
    SegmentCorrupt,
    SegmentGap,
    TargetInsideAppend,
    TargetUnreachable,
)
from headrace.pipeline.bases.making import BaseTerms, create_base, make_base
from headrace.pipeline.bases.reading import base_frame
from headrace.pipeline.failures import error_of
from tests.fault.volumes import small_volume
from tests.identities import age_identity
from tests.integration.pipeline.bases.archives import (
    Story,
    batch_of,
    put,
    segments_frame,
    truncate,
    values_of,
)
from tests.kwal import manifest_of, sealed, write

pytestmark = pytest.mark.usefixtures("several_tasks")


def story(rounds: int = 12) -> Story:
    told = Story()
    for number in range(rounds):
        told.append("shop", put(f"k{number % 5}", f'{{"n":{number}}}'), put(f"only{number}", '{"once":1}'))
        told.append("other", put("k1", f'{{"m":{number}}}', table=("main", "else")))
        if number % 4 == 1:
            told.append("shop", put(f"only{number - 1}", "{}", op=Op.DELETE))
        if number == 6:
            told.append("shop", truncate(("main", "orders"), 1))
        if number % 3 == 2:
            told.append("shop", batch_of(("b1", f'{{"b":{number}}}'), ("b2", None), (f"c{number}", "{}")))
    return told


def test_a_chain_of_bases_comes_to_the_whole_log(spark: SparkSession, tmp_path: Path) -> None:
    told = story()
    segments = told.write(tmp_path)
    places = [told.appends[9].last, told.appends[20].last]
    for place in places:
        made = create_base(spark, str(tmp_path), at=place, buckets=2)
        assert made.lsn == str(place)
        frame = base_frame(
            spark, str(tmp_path), read_base(Folder(str(tmp_path)), f"kdb-base-{place}")
        ).persist()
        assert values_of(frame) == told.values(place)
        rest = segments_frame(spark, tmp_path, place)
        assert values_of(frame.unionByName(rest)) == told.values()
        assert {one.feed: one.entries for one in made.feeds} == {
            row["feed"]: row["count"] for row in frame.groupBy("feed").count().collect()
        }
        frame.unpersist()
    last = create_base(spark, str(tmp_path), buckets=3)
    assert last.lsn == str(segments[-1].name.last)
    assert last.previous == str(places[-1])
    assert last.rows < sum(segment.entries for segment in segments)
    found = read_bases(Folder(str(tmp_path)))
    assert [str(one.lsn) for one in found.sound] == [*map(str, places), last.lsn]
    assert not found.unsound
    assert values_of(base_frame(spark, str(tmp_path), found.sound[-1])) == told.values()
    feed = next(one for one in last.feeds if one.feed == "shop")
    assert (feed.first_sequence_id, feed.sequence_id) == (1, told.next["shop"] - 1)
    again = make_base(spark, str(tmp_path), BaseTerms(buckets=2))
    assert (again.made, again.base.manifest) == (False, last)
    assert verify(str(tmp_path)).findings == []


def test_nothing_is_left_of_a_base_that_failed(spark: SparkSession, tmp_path: Path) -> None:
    told = story(4)
    told.write(tmp_path, appends_each=3)
    victim = max(tmp_path.glob("*.bin"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    before = sorted(one.name for one in tmp_path.iterdir())
    with pytest.raises(SegmentCorrupt, match=victim.name):
        create_base(spark, str(tmp_path), at=told.appends[-1].last, buckets=1)
    assert not list(tmp_path.rglob("*.parquet"))
    assert set(before) <= {one.name for one in tmp_path.iterdir()}


def test_nothing_is_left_of_a_base_on_a_full_volume(spark: SparkSession, tmp_path: Path) -> None:
    told, values = Story(), random.Random(7)
    for number in range(10):
        rows = [put(f"{number}-{one}", json.dumps(values.randbytes(125).hex())) for one in range(1_000)]
        told.append("shop", *rows)
    archive = tmp_path / "volume" / "wal"
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        told.write(archive, appends_each=5)
        before = sorted(one.name for one in archive.iterdir())
        filler = tmp_path / "volume" / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(archive).free - (200 << 10)))
        with pytest.raises(ArchiveFull):
            create_base(spark, str(archive), buckets=1)
        assert not list(archive.rglob("*.parquet"))
        assert set(before) <= {one.name for one in archive.iterdir()}
        assert verify(str(archive)).findings == []


def test_a_damaged_file_is_found_before_a_row_goes_out(spark: SparkSession, tmp_path: Path) -> None:
    told = story(3)
    told.write(tmp_path)
    made = create_base(spark, str(tmp_path), buckets=1)
    base = read_bases(Folder(str(tmp_path))).sound[0]
    assert set(files_of(Folder(str(tmp_path)), base.path)) == {
        "manifest.json",
        *(one.path for one in made.files),
    }
    victim = tmp_path / base.path / made.files[-1].path
    data = bytearray(victim.read_bytes())
    data[len(data) // 3] ^= 4
    victim.write_bytes(bytes(data))
    with pytest.raises(PySparkException) as caught:
        base_frame(spark, str(tmp_path), base).collect()
    error = error_of(caught.value)
    assert isinstance(error, BaseCorrupt)
    assert victim.name in error.detail
    told.append("shop", put("k1", "{}"))
    (tmp_path / "again").mkdir()
    told.write(tmp_path / "again")
    shutil.copytree(tmp_path / base.path, tmp_path / "again" / base.path)
    with pytest.raises(BaseCorrupt, match=victim.name):
        create_base(spark, str(tmp_path / "again"), buckets=1)


def test_a_base_that_would_lack_something_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    told = story(6)
    segments = told.write(tmp_path, appends_each=5)
    with pytest.raises(TargetInsideAppend):
        create_base(spark, str(tmp_path), at=next(one.first for one in told.appends if one.first != one.last))
    with pytest.raises(ControlsTooMany, match="more than 1,000 bytes"):
        make_base(spark, str(tmp_path), BaseTerms(buckets=1, control_bytes_max=1000))
    for file in tmp_path.glob(f"*{segments[1].name.last}*"):
        file.unlink()
    with pytest.raises(SegmentGap):
        create_base(spark, str(tmp_path), at=told.appends[-1].last)
    late = tmp_path / "late"
    write(late, segments[1], manifest_of(segments[1], walked_from=segments[0].name.last))
    with pytest.raises(TargetUnreachable):
        create_base(spark, str(late))
    assert not list(tmp_path.rglob("kdb-base-*"))


def test_what_an_accepted_gap_took_stays_visible(spark: SparkSession, tmp_path: Path) -> None:
    told = story(8)
    segments = told.write(tmp_path, appends_each=6)
    for file in tmp_path.glob(f"*{segments[1].name.last}*"):
        file.unlink()
    gap = AcceptedGap(
        after=str(segments[0].name.last),
        before=str(segments[2].name.first),
        reason="a test",
        by="me",
        at_ms=1,
    )
    (tmp_path / gap_file(gap)).write_bytes(encode_gap(gap))
    last = told.appends[-1].last
    made = create_base(spark, str(tmp_path), at=told.appends[-2].last, buckets=1)
    (kept,) = made.gaps
    assert (kept.after_lsn, kept.reasons) == (gap.after, ("me: a test",))
    assert kept.after_lsn < kept.before_lsn <= gap.before
    again = create_base(spark, str(tmp_path), at=last, buckets=1)
    assert (again.previous, again.gaps) == (made.lsn, made.gaps)
    found = plan(Archive.read(str(tmp_path)), Asked(to_lsn=last))
    assert any("a test" in warning for warning in found.warnings)


def test_encrypted_segments_need_an_identity(spark: SparkSession, tmp_path: Path) -> None:
    told = story(4)
    recipient = age_identity(tmp_path / "key.txt")
    archive = tmp_path / "wal"
    archive.mkdir()
    before = None
    for at in range(0, len(told.appends), 5):
        segment = sealed(told.appends[at : at + 5])
        put_segment(
            Folder(str(archive)),
            prepare(segment, manifest_of(segment, before=before), [recipient]),
            lambda: None,
        )
        before = segment
    with pytest.raises(IdentityNeeded):
        create_base(spark, str(archive), buckets=1)
    create_base(spark, str(archive), identity=str(tmp_path / "key.txt"), buckets=1)
    (base,) = read_bases(Folder(str(archive))).sound
    assert values_of(base_frame(spark, str(archive), base)) == told.values()
