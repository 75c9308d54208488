"""A checkpoint as Spark keeps it, read without Spark; its document; its way back into a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from headrace.errors import CheckpointNotFound, CheckpointUnfit, ConfigInvalid, FormatTooNew
from headrace.pipeline import checkpoint, checkpoint_folder
from headrace.pipeline.source.offset import Offset, Place, to_json

LSN = "0687f0b7e9dc0000.0000000001.0000000009"
QUERY = "1f084713-7c1b-4081-8c8f-c0667e5df02f"


def end(sequence_id: int, feed: str = "shop") -> str:
    return json.dumps(to_json(Offset({feed: Place(incarnation="i", sequence_id=sequence_id, lsn=LSN)})))


def spark_folder(folder: Path, *, planned: int, done: int) -> Path:
    """Make the folder that Spark would have after so many planned and done batches."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    (folder / ".metadata.crc").write_bytes(b"crc\0\xff")
    for batch in range(planned):
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1795356915120 + batch, "conf": {}})
        (folder / "offsets" / str(batch)).write_text(f"v1\n{settings}\n{end(batch * 3 + 3)}")
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc\0\xff")
        if batch < done:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def files_of(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_what_a_checkpoint_holds(tmp_path: Path) -> None:
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=12, done=11)))
    assert document.query_id == QUERY
    assert [(batch.batch_id, batch.done) for batch in document.batches] == [(10, True), (11, False)]
    assert document.batches[1].planned_at == "2026-11-22T14:15:15.131Z"
    (place,) = [checkpoint.places_in(end) for end in document.batches[1].ends]
    assert place == {"shop": Place(incarnation="i", sequence_id=36, lsn=LSN)}
    assert set(document.files) == {"metadata", "offsets/10", "offsets/11", "commits/10"}


def test_a_document_makes_the_same_checkpoint_elsewhere(tmp_path: Path) -> None:
    made = spark_folder(tmp_path / "made", planned=1, done=1)
    (made / "sources" / "0").mkdir(parents=True)
    (made / "sources" / "0" / "0").write_text("v1\n{}")
    data = checkpoint.encode(checkpoint.read_checkpoint(f"file://{made}"))
    document = checkpoint.decode(data, "the file")
    for place in (str(tmp_path / "there"), "memory://bucket/there"):
        checkpoint.write_checkpoint(document, place)
        assert checkpoint.read_checkpoint(place) == document
    assert files_of(tmp_path / "there") == document.files
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_an_import_that_is_cut_off_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=5, done=5)))
    to = tmp_path / "to"
    (to / "offsets" / "4").mkdir(parents=True)  # so that the file of this name can't be written
    with pytest.raises(CheckpointUnfit, match=r"offsets/4: .*directory"):
        checkpoint.write_checkpoint(document, str(to))
    assert (to / "metadata").read_text() == checkpoint.UNFINISHED
    assert (to / "offsets" / "3").is_file()
    (to / "offsets" / "4").rmdir()
    with pytest.raises(CheckpointUnfit, match="no checkpoint that this version can read"):
        checkpoint.read_checkpoint(str(to))
    with pytest.raises(CheckpointUnfit, match="is not empty"):
        checkpoint.write_checkpoint(document, str(to))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    made = spark_folder(tmp_path / "made", planned=1, done=1)
    document = checkpoint.read_checkpoint(str(made))
    before = (made / "metadata").read_bytes()
    with pytest.raises(CheckpointUnfit, match="is not empty") as caught:
        checkpoint.write_checkpoint(document, str(made))
    assert caught.value.exit_code == 3
    assert (made / "metadata").read_bytes() == before


@pytest.mark.parametrize("hidden", [".metadata.crc", "offsets/.0.crc", ".hidden/0"])
def test_hidden_files_are_files(tmp_path: Path, hidden: str) -> None:
    """Spark would check the file that is imported against the checksum of the one that was deleted."""
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=1, done=1)))
    (tmp_path / "to" / hidden).parent.mkdir(parents=True)
    (tmp_path / "to" / hidden).write_bytes(b"crc\0\xff")
    with pytest.raises(CheckpointUnfit, match=f"is not empty: it holds {hidden}"):
        checkpoint.write_checkpoint(document, str(tmp_path / "to"))
    assert [path.name for path in (tmp_path / "to").rglob("*") if path.is_file()] == [Path(hidden).name]


def test_a_query_that_has_not_planned_a_batch(tmp_path: Path) -> None:
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=0, done=0)))
    assert document.batches == []
    assert list(document.files) == ["metadata"]


def no_metadata(folder: Path) -> None:
    (folder / "metadata").unlink()


def with_state(folder: Path) -> None:
    (folder / "state" / "0").mkdir(parents=True)
    (folder / "state" / "0" / "1.delta").write_bytes(b"")


def another_version(folder: Path) -> None:
    (folder / "offsets" / "4").write_text("v2\n{}\n{}")


def torn(folder: Path) -> None:
    (folder / "offsets" / "4").write_text("v1\n{")


def torn_commit(folder: Path) -> None:
    (folder / "commits" / "4").write_text("")


def lacking(folder: Path) -> None:
    (folder / "offsets" / "3").unlink()


def binary(folder: Path) -> None:
    (folder / "offsets" / "4").write_bytes(b"v1\n\xff")


def endless(folder: Path) -> None:
    (folder / "sources" / "0").mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_text("x" * (checkpoint.DOCUMENT_CHARS_MAX + 1))


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (no_metadata, CheckpointNotFound, "holds no checkpoint"),
        (with_state, CheckpointUnfit, "a query with state"),
        (another_version, CheckpointUnfit, "version 'v2' of batch 4"),
        (torn, CheckpointUnfit, "no checkpoint that this version can read"),
        (torn_commit, CheckpointUnfit, "version '' of batch 4"),
        (lacking, CheckpointUnfit, "lacks the batch 3"),
        (binary, CheckpointUnfit, "offsets/4 is no text"),
        (endless, CheckpointUnfit, "characters in sources/0/0"),
    ],
)
def test_what_can_not_be_moved_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], kind: type[Exception], said: str
) -> None:
    folder = spark_folder(tmp_path / "made", planned=5, done=5)
    spoil(folder)
    with pytest.raises(kind, match=said):
        checkpoint.read_checkpoint(str(folder))


def test_a_place_that_is_none() -> None:
    with pytest.raises(CheckpointNotFound):
        checkpoint.read_checkpoint("/nowhere/at/all")
    with pytest.raises(ConfigInvalid, match="can't be opened"):
        checkpoint.read_checkpoint("nosuch://bucket/x")


class Lacking(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A driver like that of HDFS, which needs Hadoop's own libraries and names all the places where they are not."""

    protocol = "lacking"

    def __init__(self, **_: Any) -> None:
        raise OSError("unable to load libjvm\nnot here\nnor there")


@pytest.mark.parametrize("place", ["hdfs://namenode:8020/x", "lacking://x"])
def test_a_driver_that_lacks_its_library_is_told_in_a_line(place: str) -> None:
    fsspec.register_implementation("lacking", Lacking, clobber=True)
    with pytest.raises(ConfigInvalid, match="can't be opened from Python") as caught:
        checkpoint_folder.Folder(place)
    assert "\n" not in caught.value.detail


def test_a_store_that_does_not_answer_is_not_an_empty_one() -> None:
    folder = checkpoint_folder.Folder("webhdfs://127.0.0.1:1/x")
    for ask in (folder.names, lambda: folder.has("metadata"), lambda: folder.read("metadata")):
        with pytest.raises(CheckpointUnfit, match=r"webhdfs://127\.0\.0\.1:1/x"):
            ask()


class Partly(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store that refuses one folder, by an error of its driver's own."""

    protocol = "partly"
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("partly://", "memory://")))

    def ls(self, path: str, detail: bool = True, **given: Any) -> Any:
        if path.endswith("/offsets"):
            raise RuntimeError("403 of the driver's own")
        return super().ls(path, detail, **given)


def test_a_folder_that_is_refused_is_not_an_empty_one(tmp_path: Path) -> None:
    fsspec.register_implementation("partly", Partly, clobber=True)
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=1, done=1)))
    checkpoint.write_checkpoint(document, "memory://part/there")
    with pytest.raises(CheckpointUnfit, match=r"partly://part/there.*403 of the driver's own"):
        checkpoint.read_checkpoint("partly://part/there")
    fsspec.filesystem("memory").rm("/part", recursive=True)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"readable-from": 99}, FormatTooNew),
        ({"query-id": "another"}, CheckpointUnfit),
        ({"batches": []}, CheckpointUnfit),
        ({"files": {}}, CheckpointUnfit),
    ],
    ids=["newer", "id", "batches", "files"],
)
def test_a_document_that_was_changed_is_refused(
    tmp_path: Path, change: dict[str, object], kind: type[Exception]
) -> None:
    document = checkpoint.read_checkpoint(str(spark_folder(tmp_path / "made", planned=2, done=1)))
    found = json.loads(checkpoint.encode(document)) | change
    with pytest.raises(kind):
        checkpoint.decode(json.dumps(found).encode(), "the file")


@pytest.mark.parametrize("name", ["../x", "offsets/../../x", "state/0/1.delta", "offsets/x", "/metadata"])
def test_a_file_that_no_checkpoint_has_is_refused(name: str) -> None:
    with pytest.raises(CheckpointUnfit, match="which no checkpoint has"):
        checkpoint.document_of({"metadata": json.dumps({"id": QUERY}), name: "y"}, "the file")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'"x"'])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointUnfit, match="the file is no exported checkpoint"):
        checkpoint.decode(data, "the file")


def test_offsets_of_other_sources_say_nothing_of_feeds() -> None:
    others: list[object] = [None, 7, "x", {"topic": {"0": 5}}, []]
    for other in others:
        assert checkpoint.places_in(other) == {}
    assert checkpoint.places_in({"feeds": ["shop"], "start": "oldest", "readable-from": 2}) == {
        "shop": "oldest"
    }


@pytest.mark.parametrize("local", ["tables/checkpoint", "/tables", "file:///tables", "file:/tables"])
def test_a_local_checkpoint_is_kept_in_the_quick_way(local: str) -> None:
    assert checkpoint_folder.manager_of(local) == checkpoint_folder.LOCAL_MANAGER


def test_a_path_is_one_of_this_machine() -> None:
    assert checkpoint_folder.url_of("/tables of/100%/é#1") == "file:///tables of/100%/é#1"
    assert checkpoint_folder.url_of("tables") == f"file://{Path.cwd()}/tables"
    for url in ("file:/x", "s3a://bucket/x"):
        assert checkpoint_folder.url_of(url) == url


@pytest.mark.parametrize("place", ["s3a://bucket/x", "hdfs:///x", "abfss://c@a.dfs.core.windows.net/x"])
def test_elsewhere_spark_chooses(place: str) -> None:
    assert checkpoint_folder.manager_of(place) is None
