"""``headrace wal backup``: what its options mean, and the line that says how it stands."""

from __future__ import annotations

import pytest

from headrace.backup.standing import Standing
from headrace.cli.backup_progress import describe, shown_size
from headrace.cli.wal_backup import BackupOptions
from headrace.entries.lsn import Lsn
from headrace.errors import ConfigInvalid, HeadraceError, Usage

LSN = Lsn(1_800_000_000_000 << 18, 7, 63)


def test_options_as_settings() -> None:
    settings = BackupOptions(pitr_dir="s3://b/wal", segment_size="64k", segment_time="5m").settings()
    assert (settings.archive, settings.segment_bytes, settings.segment_s) == ("s3://b/wal", 65536, 300.0)
    assert (settings.retention_days, settings.buffer_days, settings.recipients) == (7, 1, ())
    assert BackupOptions(pitr_dir="x").settings().segment_bytes == 128 << 20
    assert BackupOptions(pitr_dir="x", retention_days=0).settings().retention_days is None
    assert not BackupOptions(pitr_dir="x", accept_gap=" ").settings().accept_gap, "that is no reason"


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        (BackupOptions(pitr_dir="memory://x"), Usage, "gone when this process ends"),
        (BackupOptions(pitr_dir="x", segment_size="2g"), Usage, "--segment-size"),
        (BackupOptions(pitr_dir="x", segment_size="0"), ConfigInvalid, "--segment-size"),
        (BackupOptions(pitr_dir="x", segment_time="soon"), ConfigInvalid, "--segment-time"),
        (BackupOptions(pitr_dir="x", retention_days=float("nan")), Usage, "--retention-days"),
        (BackupOptions(pitr_dir="x", buffer_days=-1), Usage, "--buffer-days"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    options: BackupOptions, error: type[HeadraceError], named: str
) -> None:
    with pytest.raises(error, match=named):
        options.settings()


def test_how_it_stands_in_a_line() -> None:
    fresh = Standing(0, 0, 0, None, None, 0, "")
    assert (
        describe(fresh, 0.0, "none behind") == "0 entries in 0 segments, 0.0 MB/s; none behind; archive empty"
    )
    busy = Standing(2, 1_500, 3_000, LSN, LSN, 20, "no room")
    said = describe(busy, 12.34, "7 entries and 2 s behind")
    assert said.startswith(
        "1,500 entries in 2 segments, 20 held, 12.3 MB/s; 7 entries and 2 s behind; archive from 2027-"
    )
    assert said.endswith("NOTHING IS ARCHIVED: no room")
    assert [shown_size(999), shown_size(5 << 20)] == ["999 bytes", "5.0 MB"]
