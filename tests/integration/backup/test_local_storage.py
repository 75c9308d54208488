"""A local archive under SIGKILL, on a full volume, and with two that want it."""

from __future__ import annotations

import errno
import random
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import TEMPORARY, put_new, remove
from headrace.archive.rights.owner import LOCK, take
from headrace.errors import ArchiveFull, ArchiveOwned
from tests.fault.volumes import VOLUME_BYTES, small_volume
from tests.integration.backup.archive_writer import Writer, content, size_of, writing
from tests.waiting import wait_until

SIZE_MAX = 3_000_000


def _halted_in_a_file(writer: Writer, place: Path) -> bool:
    """Halt the writer; let it go on unless it is in the middle of a file, as far as that can be told from outside."""
    writer.halt()
    if any(place.glob(f"{TEMPORARY}*")):
        return True
    writer.go_on()
    return False


def test_whoever_is_killed_leaves_whole_files_or_none(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    for round_ in range(scaled(6)):
        place = tmp_path / str(round_)
        writer = Writer(str(place))
        writer.tell(f"many {SIZE_MAX}")
        first = [writer.answer() for _ in range(rng.randrange(1, 4))]
        in_a_file = rng.random() < 0.7 or round_ == 0
        if in_a_file:
            wait_until(partial(_halted_in_a_file, writer, place))
        said = first + writer.kill()
        assert not in_a_file or any(place.glob(f"{TEMPORARY}*")), "it was not killed in the middle of a file"
        with take(Folder(str(place))) as owner:
            owner.check()
            found = {path.name: path.read_bytes() for path in place.iterdir() if path.name != LOCK}
        assert set(said) <= set(found) <= {*said, f"file-{len(said) + 1}"}
        for file, data in found.items():
            assert data == content(file, size_of(file, SIZE_MAX)), file


def test_a_writer_that_died_says_why(tmp_path: Path) -> None:
    with (
        writing(str(tmp_path / "wal")) as writer,
        pytest.raises(RuntimeError, match=r"(?s)ended with 1 .*IndexError"),
    ):
        writer.ask("check")


def test_a_full_volume_leaves_nothing_of_a_file_and_takes_it_once_there_is_room(tmp_path: Path) -> None:
    pieces = [content("file", VOLUME_BYTES // 8)] * 5
    with small_volume(tmp_path / "volume") as mounted:
        folder = Folder(str(tmp_path / "volume"))
        put_new(folder, "first", pieces)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if not mounted:  # then no file may be as large
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(pieces[0]), limits[1]))
        try:
            for _ in range(3):
                with pytest.raises(ArchiveFull, match="takes no more bytes"):
                    put_new(folder, "second", pieces)
                assert list(folder.files()) == ["first"]
            with take(folder):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        remove(folder, ["first"])
        put_new(folder, "second", pieces)
        assert folder.read("second") == b"".join(pieces)


def test_a_second_owner_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "wal"))
    with writing(str(tmp_path / "wal")) as first, writing(str(tmp_path / "wal")) as second:
        assert first.ask("take 30") == "ok"
        assert second.ask("take 30") == "archive-owned"
        with pytest.raises(ArchiveOwned, match=f'"pid":{first.process.pid}'):
            take(folder)
        first.process.send_signal(signal.SIGSTOP)
        assert second.ask("take 30") == "archive-owned", "a lock does not end while its process is stopped"
        first.process.send_signal(signal.SIGCONT)
        assert first.ask("check") == "ok"
        first.kill()
        assert second.ask("take 30") == "ok"
        (tmp_path / "wal" / LOCK).unlink()
        assert second.ask("check") == "archive-owned"


def test_the_error_of_a_full_disk_is_the_same_wherever_it_comes_from() -> None:
    folder = Folder("/nowhere")
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        with pytest.raises(ArchiveFull), folder.reaching("file"):
            raise OSError(number, "no room")
