"""The folder of a restore: durable before its outcome says that it is whole, and one restore's alone."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from pathlib import Path

import pytest

from headrace.errors import ArchiveFull, OutNotEmpty, StoreUnavailable, Usage
from headrace.pipeline.restore import out as out_folder
from headrace.pipeline.restore.out import OUTCOME, Out, check_out, unwritable
from headrace.runtime.disk import SyncFailed
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.fault.volumes import small_volume


class _Watched(FaultyDisk):
    """A disk that notes what stood in a folder when it was synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[tuple[Path, list[str]]] = []

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.synced.append((path, sorted(str(one.relative_to(path)) for one in path.rglob("*"))))


@pytest.mark.parametrize("is_there", [False, True])
def test_all_names_are_durable_before_the_outcome_is_there(tmp_path: Path, is_there: bool) -> None:
    place, disk = tmp_path / "above" / "out", _Watched()
    if is_there:
        place.mkdir(parents=True)
    with Out(place, disk) as out:
        (out.writing / "feed=a").mkdir()
        (out.writing / "feed=a" / "part").write_bytes(b"1")
        writing = out.writing
        out.publish(b"{}")
    before = [(path, names) for path, names in disk.synced if not any(one.endswith(OUTCOME) for one in names)]
    # What was written, under its first name; then under OUT's; then OUT, under the name that it has.
    assert (writing / "feed=a", ["part"]) in before
    assert (place, ["_headrace", "feed=a", "feed=a/part"]) in before
    assert (place.parent, ["out", "out/_headrace", "out/feed=a", "out/feed=a/part"]) in before
    assert (Step.SYNC, "part") in disk.steps
    assert disk.synced[-1][0] == (place / OUTCOME).parent
    if not is_there:
        assert disk.synced[0] == (tmp_path, ["above"])


@pytest.mark.parametrize("suffix", ["above", "out", "part"])
def test_what_can_not_be_made_durable_is_taken_away(tmp_path: Path, suffix: str) -> None:
    place = tmp_path / "above" / "out"
    step = Step.SYNC if suffix == "part" else Step.SYNC_FOLDER
    disk = FaultyDisk(Fault(step, suffix=suffix))
    place.parent.mkdir()
    with Out(place, disk) as out:
        (out.writing / "feed=a").mkdir()
        (out.writing / "feed=a" / "part").write_bytes(b"1")
        with pytest.raises(SyncFailed):
            out.publish(b"{}")
    assert list((tmp_path / "above").iterdir()) == []


def _names(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


@pytest.fixture
def both_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores that look at OUT before any of them makes something in it."""
    monkeypatch.setattr(out_folder, "check_out", lambda out: None)


@pytest.mark.usefixtures("both_looked")
@pytest.mark.parametrize("is_there", [False, True])
def test_who_finds_another_restore_in_out_gives_up(tmp_path: Path, is_there: bool) -> None:
    place = tmp_path / "above" / "out"
    if is_there:
        place.mkdir(parents=True)
    with Out(place) as first:
        (first.writing / "feed=a").mkdir()
        with pytest.raises(OutNotEmpty, match="another one writes there"), Out(place):
            pytest.fail("two write there")
        first.publish(b"{}")
        with pytest.raises(OutNotEmpty, match="another one writes there"), Out(place):
            pytest.fail("it writes over a restore")
    assert _names(place) == ["_headrace", OUTCOME, "feed=a"]


@pytest.mark.usefixtures("both_looked")
def test_a_restore_takes_only_its_own_away(tmp_path: Path) -> None:
    """Even of what stands there, with the names of its own, although no other restore could get there."""
    place = tmp_path / "out"
    with Out(place) as out:
        (out.writing / "feed=a").mkdir()
        (place / OUTCOME).parent.mkdir()
        (place / OUTCOME).write_bytes(b"of another")
        with pytest.raises(OutNotEmpty, match=OUTCOME):
            out.publish(b"{}")
    assert _names(place) == ["_headrace", OUTCOME]
    (place / OUTCOME).unlink()
    (place / OUTCOME).parent.rmdir()
    with Out(place) as out:
        for name in ("feed=a", "feed=b"):
            (out.writing / name).mkdir()
        (place / "feed=b").mkdir()
        (place / "feed=b" / "of another").touch()
        with pytest.raises(OSError, match="feed=b"):
            out.publish(b"{}")
    assert _names(place) == ["feed=b", "feed=b/of another"]
    with contextlib.suppress(OSError), Out(tmp_path / "alone"):
        raise OSError
    assert not (tmp_path / "alone").exists()


class _Interrupted(FaultyDisk):
    """A disk whose user stops the restore just when the outcome has got its name."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.removing: list[list[str]] = []

    def link(self, old: Path, new: Path) -> None:
        super().link(old, new)
        raise KeyboardInterrupt

    def remove(self, path: Path) -> None:
        self.removing.append(_names(path.parents[1]))
        super().remove(path)


def _stopped(place: Path, disk: _Interrupted) -> None:
    with Out(place, disk) as out:
        (out.writing / "feed=a").mkdir()
        (out.writing / "feed=a" / "part").write_bytes(b"1")
        with pytest.raises(KeyboardInterrupt):
            out.publish(b"{}")


def test_an_outcome_is_gone_before_anything_that_it_stands_over(tmp_path: Path) -> None:
    disk = _Interrupted()
    _stopped(tmp_path / "out", disk)
    assert disk.removing == [["_headrace", OUTCOME, "feed=a", "feed=a/part"]]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", [Step.REMOVE, Step.SYNC_FOLDER])
def test_what_an_outcome_may_stand_over_stays_whole(tmp_path: Path, step: Step) -> None:
    """The outcome can't be removed, or a power cut may bring it back."""
    place = tmp_path / "out"
    suffix = OUTCOME.rpartition("/")[0 if step is Step.SYNC_FOLDER else 2]
    _stopped(place, _Interrupted(Fault(step, suffix=suffix, after=1 if step is Step.SYNC_FOLDER else 0)))
    assert {"feed=a", "feed=a/part"} <= set(_names(place))
    assert (place / OUTCOME).exists() is (step is Step.REMOVE)


def test_a_folder_that_can_not_be_there_is_named_before_anything_is_begun(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Usage, match=r"file is a file, not a folder"):
        check_out(tmp_path / "file" / "below" / "out")
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "volume")], check=True)
        with pytest.raises(Usage, match=r"this user can't write in .*volume"):
            check_out(tmp_path / "volume" / "out")


def test_what_a_disk_says_is_an_error_with_the_option_to_change() -> None:
    for number, error in (
        (errno.ENOSPC, ArchiveFull),
        (errno.EDQUOT, ArchiveFull),
        (errno.EIO, StoreUnavailable),
    ):
        found = unwritable("/out", "--out", OSError(number, "as the disk has it"))
        assert isinstance(found, error)
        assert "as the disk has it" in found.detail
        assert "--out DIR" in str(found.advice)
        assert found.exit_code == 1
