"""``headrace wal drill``: restore a random moment into a scratch folder, and compare it with the log. Fit for cron."""

from __future__ import annotations

import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.cli.rate_progress import rate_progress
from headrace.cli.spark_jobs import SparkOptions, check_installed
from headrace.cli.wal_options import Flag, identity_of
from headrace.cli.wal_restore import SHORT_BYTES_MAX
from headrace.errors import Usage

if TYPE_CHECKING:
    from headrace.pipeline.drill.job import Report


def drill_command(
    *,
    wal_dir: str,
    seed: int | None = None,
    scratch: Path | None = None,
    identity: Path | None = None,
    spark: SparkOptions | None = None,
    log_file: Path | None = None,
    json: Flag = False,
) -> int:
    """Restore a random moment of the archive as keys and values, and compare every key with a fold of another kind.

    Exit code 0: all keys are equal; 1: one differs, the restore ended at another entry than the last whole one, or there was
    no key to compare; 3: damage, or a gap; 4: nothing can be restored. Where nobody watches, nothing is printed of a drill
    that went well and left nothing out, unless --json is given. The scratch folder is emptied again.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    seed
        Chooses the moment; the one that is printed gives the same again. Default: another one each time.
    scratch
        Folder below which is written, with room for what is restored, twice, and for the log up to then. Default: the
        system's for temporary files.
    identity
        File of the age identities that open encrypted segments.
    log_file
        Where Spark's own output goes. Default: nowhere.
    json
        Print one JSON document, on one line.
    """
    check_installed()
    from headrace.archive.moments.catalogue import Archive
    from headrace.pipeline.drill.job import drill
    from headrace.pipeline.session import open_session, stop_session

    if scratch is not None and not scratch.is_dir():
        raise Usage(f"--scratch {scratch} is no folder")
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    held = Archive.read(wal_dir, identity_of(identity))  # before Spark is started for nothing
    short = not held.bases and sum(one.size for one in held.segments) < SHORT_BYTES_MAX
    with tempfile.TemporaryDirectory(prefix="headrace-drill-log-") as logs:
        log = log_file if log_file is not None else Path(logs) / "spark.log"
        options = spark or SparkOptions()
        session = open_session(options.session("headrace drill", log, checkpoint="", short_lived=short))
        try:
            with rate_progress("drilling") as told:
                report = drill(
                    session,
                    wal_dir,
                    seed=seed,
                    scratch=str(scratch or ""),
                    identity=identity_of(identity),
                    tell=lambda now: told(now.bytes_done, now.bytes_total),
                )
        finally:
            stop_session(session)
    if json:
        print(msgspec.json.encode(report).decode(), flush=True)
    elif not report.equal or report.left_out or report.warnings or sys.stdout.isatty():
        print("\n".join(lines_of(report)), flush=True)
    return int(not report.equal)


def lines_of(report: Report) -> list[str]:
    """Return what a drill found, in lines for a person."""
    word = f"{report.differing} of them DIFFER" if report.differing else "equal"
    if not report.keys and not report.differing:
        word = "NOTHING COMPARED"
    where = f"{report.archive} at lsn={report.target_lsn} (seed {report.seed})"
    lines = [f"{where}: {report.keys} keys of {report.feeds} feeds, {word}"]
    for one in report.differences:
        sides = {(True, False): "restored, not in the log", (False, True): "in the log, not restored"}
        lines.append(f"  {one.feed} {one.key}: {sides.get((one.restored, one.log), 'another value')}")
    if report.whole_lsn != report.target_lsn:
        lines.append(f"  restored to ANOTHER ENTRY than the last whole one, lsn={report.whole_lsn}")
    lines += [f"left out: {feed}, whose keys do not tell its rows apart" for feed in report.left_out]
    lines += [f"warning: {one}" for one in report.warnings]
    lines.append(
        f"recovery time {report.restore_seconds:.1f} s for {report.restore_bytes / 1e6:,.1f} MB, "
        f"{report.restore_mb_per_second:,.1f} MB/s"
    )
    lines.append(
        f"recovery point: what can be restored ends {report.recovery_point_seconds:,.0f} s ago, at lsn={report.newest_lsn}"
    )
    return lines
