"""An archive in S3 (moto's server): one put that does not replace, lost answers, one owner, segments read back."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Range, check_gaps
from headrace.archive.files.settling import Settled, prepare, put_segment, settle
from headrace.archive.files.writing import put_new, remove
from headrace.archive.rights.owner import take
from headrace.errors import ArchiveConflict, ArchiveOwned, ArchiveUnavailable, InvalidRequest
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import encode_manifest
from tests.identities import age_identity
from tests.integration.backup.archive_writer import Writer, content, size_of, writing
from tests.kwal import bytes_of, manifest_of, numbered, sealed
from tests.proxy import Proxy
from tests.s3 import S3Server, config_of
from tests.scale import sized
from tests.waiting import wait_until

SEGMENTS = [sealed([numbered(first, 10)]) for first in (1, 11, 21)]
LEASE_S = 1.0


def check() -> None:
    """Nobody else is there."""


def test_one_put_that_never_replaces(s3_url: str) -> None:
    folder = Folder(s3_url)
    assert not folder.exists("below/file")
    pieces = [content("file", 12 << 20), b"end"]
    put_new(folder, "below/file", pieces)
    put_new(folder, "below/file", [b"".join(pieces)])
    for other in (b"short", content("other", (12 << 20) + 3)):
        with pytest.raises(ArchiveConflict, match=f"{s3_url}/below/file is there already"):
            put_new(folder, "below/file", [other])
    assert folder.read("below/file") == b"".join(pieces)
    remove(folder, ["below/file", "below/none"])
    assert not folder.exists("below/file")
    with pytest.raises(ArchiveUnavailable, match="below/file is not there"):
        folder.read("below/file")
    with pytest.raises(ArchiveUnavailable):
        put_new(Folder("s3://no-such-bucket/wal"), "file", [b"x"])


@contextmanager
def resumed(proxy: Proxy) -> Iterator[None]:
    """Let connections pass again as soon as the proxy has cut."""

    def resume() -> None:
        wait_until(lambda: proxy.sprung)
        proxy.resume()

    thread = threading.Thread(target=resume)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("delivered", [True, False])
def test_a_connection_lost_in_the_middle_of_a_put(
    s3: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    direct = Folder(s3_url)
    with Proxy("127.0.0.1", s3.port) as proxy:
        # As the driver is, it tries for half a minute, with pauses.
        patient, hasty = (_retrying(s3_url, proxy, tries, monkeypatch) for tries in (3, 0))
        for number, size in enumerate((10, 3 << 20)):
            pieces = [content("file", size)]
            # The line goes, and comes back while the driver still tries: its second try may meet its first.
            proxy.cut_at(f"PUT /{direct.path(f'back-{number}')}".encode(), delivered=delivered)
            with resumed(proxy):
                put_new(patient, f"back-{number}", pieces)
            assert direct.read(f"back-{number}") == pieces[0]
            # It stays away. Nobody knows then, until the same put is made again.
            proxy.cut_at(f"PUT /{direct.path(f'away-{number}')}".encode(), delivered=delivered)
            with pytest.raises(ArchiveUnavailable):
                put_new(hasty, f"away-{number}", pieces)
            proxy.resume()
            put_new(hasty, f"away-{number}", pieces)
            assert direct.read(f"away-{number}") == pieces[0]
            with pytest.raises(ArchiveConflict):
                put_new(hasty, f"away-{number}", [b"other"])


def _retrying(url: str, proxy: Proxy, tries: int, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder behind the proxy, with a driver that tries so many times more."""
    config = config_of(proxy.port) | {"config_kwargs": {"retries": {"max_attempts": tries}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", config)
    folder = Folder(url)
    folder.store.retries = 1 + tries
    return folder


def test_who_is_killed_leaves_whole_objects_or_none(
    s3: S3Server, s3_url: str, scaled: Callable[[int], int]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    for round_ in range(scaled(sized(1, soak=2))):
        url = f"{s3_url}/{round_}"
        writer = Writer(url, s3.env)
        writer.tell("many 2000000")
        first = [writer.answer() for _ in range(rng.randrange(1, 6))]
        said = first + writer.kill()
        folder = Folder(url)
        found = folder.files()
        assert set(said) <= set(found) <= {*said, f"file-{len(said) + 1}"}
        for file in found:
            assert folder.read(file) == content(file, size_of(file, 2_000_000)), file


def test_one_owner_at_a_time_killed_stopped_and_gone_on(s3: S3Server, s3_url: str) -> None:
    folder = Folder(s3_url)
    with writing(s3_url, s3.env) as first, writing(s3_url, s3.env) as second:
        assert first.ask(f"take {LEASE_S}") == "ok"
        assert second.ask(f"take {LEASE_S}") == "archive-owned"
        with pytest.raises(ArchiveOwned, match=f"backup, process {first.process.pid} of "):
            take(folder)
        assert first.ask("check") == "ok"
        # Stopped for longer than its lease: another takes over, and it finds out before its next put.
        first.process.send_signal(signal.SIGSTOP)
        assert second.ask(f"take {LEASE_S}") == "ok"
        first.process.send_signal(signal.SIGCONT)
        assert first.ask("check") == "archive-owned"
        assert second.ask("check") == "ok"
        assert first.ask(f"take {LEASE_S}") == "archive-owned"
        # Killed on this machine: nobody has to wait.
        second.kill()
        assert first.ask("take 3600") == "ok"
        first.kill()
    with take(folder) as owner:
        owner.check()
        assert [file for file in folder.files() if file.startswith("owner-")]


def test_segments_are_put_and_read_encrypted_and_plain(s3_url: str, tmp_path: Path) -> None:
    recipient = age_identity(tmp_path / "key")
    folder = Folder(s3_url, str(tmp_path / "key"))
    put_new(folder, "other-file", [b"x"])
    with pytest.raises(InvalidRequest, match="holds no KWAL segment"):
        folder.segments()
    before = None
    for segment, recipients in zip(SEGMENTS, ([], [recipient], [recipient]), strict=True):
        files = prepare(segment, manifest_of(segment, before=before), recipients)
        assert put_segment(folder, files, check) == files.manifest
        assert put_segment(folder, files, check) == files.manifest
        again = prepare(segment, manifest_of(segment, before=before), recipients)
        assert put_segment(folder, again, check) == files.manifest, (
            "never the same bytes twice, but the same entries"
        )
        before = segment
    found = folder.segments()
    names = [str(SEGMENTS[0].name), SEGMENTS[1].name.encrypted, SEGMENTS[2].name.encrypted]
    assert [one.file for one in found] == names
    manifests = folder.manifests(found)
    check_gaps(found, None, Range(), manifests)
    for one, segment in zip(found, SEGMENTS, strict=True):
        data = folder.read_segment(one.file)
        assert data == bytes_of(segment)
        assert len(Segment(data, where=one.file, name=one.name, manifest=manifests[one.file])) == 10
    assert not [file for file in folder.files() if file.endswith(".pending.json")]


def test_what_a_killed_agent_had_begun_is_settled(s3_url: str, tmp_path: Path) -> None:
    folder = Folder(s3_url)
    recipient = age_identity(tmp_path / "key")
    files = [prepare(segment, manifest_of(segment), [recipient]) for segment in SEGMENTS]
    for number, one in enumerate(files):
        put_new(folder, one.manifest.name.pending, [encode_manifest(one.manifest)])
        if number > 0:
            put_new(folder, one.manifest.file, one.pieces)
    put_new(folder, SEGMENTS[2].name.manifest, [encode_manifest(files[2].manifest)])
    assert settle(folder) == [Settled(segment.name, kept=True) for segment in SEGMENTS[1:]]
    assert folder.exists(SEGMENTS[0].name.pending), "its segment may be on the way yet"
    assert settle(folder) == []
    found = folder.segments()
    assert [one.name for one in found] == [SEGMENTS[1].name, SEGMENTS[2].name]
    assert folder.manifests(found) == {one.manifest.file: one.manifest for one in files[1:]}
