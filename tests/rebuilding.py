"""Archives of a journal on the bench, and data folders rebuilt from them: for tests without a server."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan
from headrace.archive.moments.target import Asked
from headrace.backup.rebuilding.outcome import Rebuilt, RebuiltFeed
from headrace.backup.rebuilding.rebuild import Means, rebuild
from headrace.cli.app import main
from headrace.entries.lsn import ZERO, Lsn
from headrace.log.files.examine import examine
from headrace.log.files.store import FileStore
from headrace.log.tail import FeedTail
from headrace.runtime.disk import Disk
from headrace.testing.clock import ManualClock
from headrace.wire.frame import FrameKind
from headrace.wire.kwal import Sealed, SegmentWriter
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed
from tests import kwal
from tests.bench import Bench
from tests.stores import SMALL_SEGMENT

OTHER: Final = "b" * 8
"""The incarnation of :func:`change_history`."""


class Given(NamedTuple):
    """An entry as subscribers get it: its bytes (an ``entries`` field), LSN, and its feed's incarnation."""

    data: bytes
    lsn: Lsn
    sequence_id: int
    incarnation: str


def stream(bench: Bench, above: Lsn = ZERO) -> list[Given]:
    """Every retained entry of the journal above an LSN, in order."""
    tails = {tail.region_id: tail for tail in bench.store.tails()}
    found: list[Given] = []
    at = bench.store.oldest_position()
    while at < bench.store.end():
        for frame in bench.store.walk(at, bytes_max=1 << 20):
            header, at = frame.header, frame.header.end
            if header.kind != FrameKind.ENTRIES:
                continue
            for index, entry in enumerate(frame.entries()):
                place = header.lsn(index), header.first_sequence_id + index
                found.append(Given(bytes(entry), *place, tails[header.region_id].incarnation))
    return [one for one in found if one.lsn > above]


def registry(bench: Bench) -> tuple[RegisteredFeed, ...]:
    """The feeds as the server's admin face gives them."""
    return tuple(map(_registered, bench.store.tails()))


def _registered(tail: FeedTail) -> RegisteredFeed:
    return RegisteredFeed(
        feed=tail.name,
        region_id=tail.region_id,
        tenant_id=tail.tenant,
        mode="shared" if tail.shared else "owned",
        owner=tail.owner,
        epoch=tail.epoch,
        next_sequence_id=tail.next_sequence_id,
        incarnation=tail.incarnation,
        first_sequence_id=tail.first_sequence_id,
        settings=msgspec.to_builtins(tail.settings),
        lost_lsns=tail.lost_by_rebuilds,
    )


def change_history(monkeypatch: pytest.MonkeyPatch, region: int, began: int) -> None:
    """From here on a feed is archived under another history, which began at ``began``."""
    given, told = stream, registry

    def stream_then(bench: Bench, above: Lsn = ZERO) -> list[Given]:
        found = given(bench, above)
        return [one._replace(incarnation=OTHER) if one.lsn.region_id == region else one for one in found]

    def registry_then(bench: Bench) -> tuple[RegisteredFeed, ...]:
        changed = {"incarnation": OTHER, "first_sequence_id": began}
        return tuple(
            msgspec.structs.replace(one, **changed) if one.region_id == region else one for one in told(bench)
        )

    monkeypatch.setattr(f"{__name__}.stream", stream_then)
    monkeypatch.setattr(f"{__name__}.registry", registry_then)


class Backup:
    """A folder of segments, written from the journal as an agent would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before: Sealed | None = None

    def take(self, bench: Bench, *, sizes: Sequence[int] = ()) -> list[Manifest]:
        """Archive what is new. ``sizes``: entries of each segment; the last one takes what is left."""
        given = stream(bench, self._before.name.last if self._before is not None else ZERO)
        found = []
        for size in (*sizes, len(given)):
            part, given = given[:size], given[size:]
            if part:
                found.append(self._segment(part, registry(bench)))
        return found

    def _segment(self, part: Sequence[Given], feeds: tuple[RegisteredFeed, ...]) -> Manifest:
        writer = SegmentWriter()
        for one in part:
            writer.add(one.data, [len(one.data)], one.lsn, one.lsn)
        sealed = writer.seal()
        regions = {one.lsn.region_id: one for one in reversed(part)}
        manifest = kwal.manifest_of(
            sealed,
            before=self._before,
            incarnations={region: one.incarnation for region, one in regions.items()},
        )
        placed = []
        for run in manifest.feeds:
            first = regions[run.region_id].sequence_id
            apart = run.last_sequence_id - run.first_sequence_id
            placed.append(
                msgspec.structs.replace(run, first_sequence_id=first, last_sequence_id=first + apart)
            )
        manifest = msgspec.structs.replace(manifest, feeds=tuple(placed), registry=feeds)
        kwal.write(self.folder, sealed, manifest)
        self._before = sealed
        return manifest


def archive(folder: Path) -> Archive:
    """The archive as it stands in ``folder``."""
    opened = Folder(str(folder))
    segments = opened.segments()
    return Archive(opened, segments, opened.manifests(segments))


def plan_of(found: Archive, target: Lsn | None = None) -> RestorePlan:
    """A plan that uses all segments up to ``target`` (the archive's end), and says nothing of feeds."""
    target = target if target is not None else found.segments[-1].name.last
    return RestorePlan(
        asked=Asked(to_lsn=target),
        target_lsn=target,
        log_time_ms=target.committed_at_ms,
        source_time_ms=None,
        moved_from=None,
        moved_why="",
        base=None,
        base_url="",
        segments=tuple(one for one in found.segments if one.name.first <= target),
        feeds=(),
        gaps=(),
        warnings=(),
        nearest_before=None,
        nearest_after=None,
    )


def means(clock: ManualClock | None = None, segment_bytes: int = SMALL_SEGMENT) -> Means:
    """A rebuild's means: small segments, and a clock that is set by hand."""
    return Means(
        clock=clock if clock is not None else ManualClock(), disk=Disk(), segment_bytes=segment_bytes
    )


def rebuilt(folder: Path, data_dir: Path, target: Lsn | None = None) -> Rebuilt:
    """Rebuild ``data_dir`` from the archive in ``folder``, and check that nothing there is damaged."""
    found = archive(folder)
    made = rebuild(plan_of(found, target), found, data_dir, means=means())
    check_whole(data_dir)
    return made


def check_whole(data_dir: Path) -> None:
    """Fail if ``headrace log verify`` would find something."""
    findings = examine(data_dir)
    findings.close()
    assert not findings.damages, findings.damages


def rebuilt_in_place(folder: Path, data_dir: Path, target: Lsn | None = None, *more: str) -> Rebuilt:
    """Rebuild a server's data folder by ``headrace wal restore --as server``, up to ``target`` (the archive's end)."""
    target = target if target is not None else archive(folder).segments[-1].name.last
    words = ["wal", "restore", "--as", "server", "--wal-dir", str(folder), "--to-lsn", str(target)]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*words, "--data-dir", str(data_dir), "--json", *more])
    assert code == 0, out.getvalue() + err.getvalue()
    check_whole(data_dir)
    return msgspec.json.decode(out.getvalue(), type=Rebuilt)


@contextmanager
def opened(data_dir: Path) -> Iterator[Bench]:
    """The journal in ``data_dir``, on the bench."""
    store = FileStore(data_dir, segment_bytes=SMALL_SEGMENT)
    try:
        yield Bench(store)
    finally:
        store.close()


def feed_of(made: Rebuilt, feed: str) -> RebuiltFeed:
    """What became of a feed."""
    return next(one for one in made.feeds if one.feed == feed)
