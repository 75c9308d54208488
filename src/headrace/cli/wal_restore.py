"""``headrace wal restore``: tables, keys and values, or a server's data folder as they were at one moment (RFC-010 §5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from headrace.cli.rate_progress import rate_progress
from headrace.cli.spark_jobs import SparkOptions, check_installed, tell
from headrace.cli.wal_options import Flag, MomentOptions, identity_of
from headrace.errors import Usage
from headrace.runtime.logs import get_logger

if TYPE_CHECKING:
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.target import Asked
    from headrace.pipeline.restore.job import Request


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What --as server takes.

    Parameters
    ----------
    data_dir
        The data folder to make, empty or not there.
    clock_margin
        Seconds that the server's clock goes on above this machine's (1 to 3600): by how much the lost server's may have been
        ahead.
    """

    data_dir: Path | None = None
    clock_margin: Annotated[int, Parameter(validator=Number(gte=1, lte=3600))] = 60


def restore_command(
    *,
    wal_dir: str,
    moment: MomentOptions | None = None,
    out: str = "",
    as_: Annotated[Literal["tables", "kv", "server"], Parameter(name="--as")] = "tables",
    server: ServerOptions | None = None,
    snapshot: str = "auto",
    feeds: str = "",
    identity: Path | None = None,
    allow_incomplete: Flag = False,
    max_entries: Annotated[int, Parameter(validator=Number(gte=1))] = 1_000_000,
    spark: SparkOptions | None = None,
    log_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Restore the moment that is named: no entry behind it, no append and no source transaction torn.

    What the plan needs is verified before anything is written, and what was written is counted again in another way: unless
    all of it is exact, nothing is left in OUT. Exit code 3: a gap, damage, or a folder that is not empty; 4: out of reach.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    out
        Folder to write, empty or not there; for tables and kv. Spark's workers must reach it by the same path.
    as_
        tables: Delta tables. kv: the newest value of each key, as Parquet. server: a data folder for headrace serve.
    snapshot
        Base snapshot to begin with: auto (the newest that serves; for a server the oldest start), or its folder's address.
    feeds
        Names of feeds, with commas between. Default: all.
    identity
        File of the age identities that open encrypted segments; workers must reach it by the same path.
    allow_incomplete
        Restore even if a table is not whole at that moment (it is stopped, or its first rows were still being copied), or if
        keys alone do not tell a feed's rows apart (kv): such tables and feeds are named.
    max_entries
        Entries that are folded into tables at once.
    log_file
        Where Spark's own output goes. Default: OUT.restore.log.
    json
        Print one JSON document.
    """
    asked = (moment or MomentOptions()).asked()
    server = server or ServerOptions()
    if as_ == "server":
        if server.data_dir is None or out or feeds:
            raise Usage("--as server takes --data-dir, and neither --out nor --feeds")
        place, margin_s = server.data_dir, server.clock_margin
        _rebuild(wal_dir, asked, place, snapshot, identity_of(identity), as_json=json, margin_s=margin_s)
        return
    if not out or server != ServerOptions():
        raise Usage(f"--as {as_} takes --out, and neither --data-dir nor --clock-margin")
    check_installed()
    from headrace.pipeline.restore.job import Kind, Request

    request = Request(
        archive=wal_dir,
        asked=asked,
        out=out,
        kind=Kind(as_),
        snapshot=snapshot,
        identity=identity_of(identity),
        feeds=_names_in(feeds),
        allow_incomplete=allow_incomplete,
        entries_max=max_entries,
    )
    _restore(request, spark or SparkOptions(), log_file, as_json=json)


def _names_in(feeds: str) -> tuple[str, ...]:
    from headrace.entries.feed import check_feed_id

    return tuple(check_feed_id(name.strip()) for name in feeds.split(",")) if feeds else ()


def _rebuild(
    wal_dir: str, asked: Asked, data_dir: Path, snapshot: str, identity: str, *, as_json: bool, margin_s: int
) -> None:
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.planning import plan
    from headrace.archive.rights.holds import NOT_HELD, hold
    from headrace.backup.rebuilding.rebuild import Means, rebuild
    from headrace.runtime.clock import SystemClock
    from headrace.runtime.disk import Disk

    archive = Archive.read(wal_dir, identity)
    first = plan(archive, asked, snapshot, oldest=True)
    running = _agent_at_work(archive)
    with hold(archive.folder, first.after_lsn) as held, rate_progress("rebuilding") as progress:
        archive = Archive.read(wal_dir, identity)  # anew: a prune may have gone on until the archive was held
        means = Means(clock=SystemClock(), disk=Disk(), clock_margin_ms=margin_s * 1000)
        planned = plan(archive, asked, snapshot, oldest=True)
        rebuilt = rebuild(planned, archive, data_dir, progress=progress, means=means)
    warnings = running if held else (*running, NOT_HELD)
    rebuilt = msgspec.structs.replace(rebuilt, warnings=(*warnings, *rebuilt.warnings))
    print(rebuilt.encode().decode() if as_json else "\n".join(rebuilt.lines()), flush=True)


def _agent_at_work(archive: Archive) -> tuple[str, ...]:
    """Warn, at once and in the outcome, of entries that the archive is still to get."""
    from headrace.archive.rights.owner import owner_of

    owner = owner_of(archive.folder)
    if not owner:
        return ()
    warning = (
        f"a backup agent is at work on the archive ({owner}): what it holds is not in there yet. If this is to replace the "
        "lost server, stop the agent, which writes it, and rebuild then"
    )
    get_logger("backup").warning("the archive is still written to", detail=warning)
    return (warning,)


def _restore(request: Request, options: SparkOptions, log_file: Path | None, *, as_json: bool) -> None:
    from headrace.pipeline.restore.job import checked, restore
    from headrace.pipeline.session import open_session, stop_session
    from headrace.pipeline.tables.ledger import local_folder

    _, plan = checked(request)  # before Spark is started for nothing
    out = local_folder(request.out)
    short = sum(one.size for one in plan.segments) < SHORT_BYTES_MAX and plan.base is None
    log = log_file if log_file is not None else out.with_name(f"{out.name}.restore.log")
    settings = options.session("headrace restore", log, checkpoint="", short_lived=short)
    tell(f"starting Spark; its own output goes to {log}")
    session = open_session(settings)
    try:
        with rate_progress("restoring") as told:
            outcome = restore(session, request, lambda now: told(now.bytes_done, now.bytes_total))
    finally:
        stop_session(session)
    print(msgspec.json.encode(outcome).decode() if as_json else "\n".join(outcome.lines()), flush=True)


SHORT_BYTES_MAX: Final = 16 << 20
"""Segments up to this size are restored before a session that becomes quick later would be worth its while."""
