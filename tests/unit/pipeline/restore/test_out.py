"""The folder of a restore is durable, its own name too, before its outcome says that it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.restore.out import OUTCOME, Out
from headrace.runtime.disk import SyncFailed
from headrace.testing.disk import Fault, FaultyDisk, Step


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
    before = [(path, names) for path, names in disk.synced if not any("_headrace" in one for one in names)]
    # What was written, under its first name; then under OUT's; then OUT, under the name that it has.
    assert (writing / "feed=a", ["part"]) in before
    assert (place, ["feed=a", "feed=a/part"]) in before
    assert (place.parent, ["out", "out/feed=a", "out/feed=a/part"]) in before
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
