"""``headrace snapshot create``: a base snapshot, folded on Spark from the one before and the segments behind it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from headrace.cli.rate_progress import rate_progress
from headrace.cli.spark_jobs import SparkOptions, check_installed, tell
from headrace.cli.wal_options import Flag, MomentOptions, identity_of
from headrace.errors import Usage

if TYPE_CHECKING:
    from headrace.archive.moments.target import Asked
    from headrace.pipeline.bases.making import BaseTerms, Created
    from headrace.pipeline.bases.publishers import Publishers
    from headrace.wire.base_manifest import BaseManifest

BUCKETS_MAX: Final = 4096
SHORT_BYTES_MAX: Final = 16 << 20
"""Segments up to this size are folded before a session that becomes quick later would be worth its while."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PublisherOptions:
    """Where rows come from that were there before the archive began.

    Parameters
    ----------
    from_publishers
        Begin feeds whose first entries are not in the archive with their publishers' snapshots. No other base is used then.
    scratch
        Folder for these snapshots while the base is made; workers must reach it by the same path. Default: beside the
        archive, or in the folder for temporary files for an object store.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    """

    from_publishers: Flag = False
    scratch: Path | None = None
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470"
    token_file: Path | None = None
    ca_file: Path | None = None

    @contextmanager
    def publishers(self, archive: Path | None) -> Iterator[Publishers | None]:
        """Give who to ask for snapshots, with a scratch folder that goes afterwards; None if nobody is asked.

        Usage if no such folder can be made.
        """
        if not self.from_publishers:
            yield None
            return
        from headrace.pipeline.bases.publishers import Publishers
        from headrace.pipeline.connection import Endpoint

        token, ca = ("" if file is None else str(file) for file in (self.token_file, self.ca_file))
        beside = self.scratch or (archive.parent if archive is not None else None)
        try:
            made = tempfile.TemporaryDirectory(prefix="headrace-snapshots-", dir=beside)
        except OSError as error:
            where = beside or tempfile.gettempdir()
            raise Usage(
                f"no folder for snapshots can be made in {where}: {error}", hint="--scratch DIR."
            ) from None
        with made as scratch:
            yield Publishers(Endpoint(self.server, token, ca), Path(scratch).absolute())


def create_command(
    *,
    wal_dir: str,
    moment: MomentOptions | None = None,
    previous: str = "auto",
    identity: Path | None = None,
    buckets: int | None = None,
    max_control_bytes: int = 1 << 30,
    publishers: PublisherOptions | None = None,
    spark: SparkOptions | None = None,
    log_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Make a base snapshot in the archive: what is left of the log up to a moment once all that was overwritten is gone.

    Without a moment it is the archive's newest one at which every append and every source transaction is whole. All that is
    needed is read and verified before anything is written; the manifest comes last, and nothing is left of a base that
    failed. A base that is there already is told, and nothing is done. Exit codes: 3 for a gap or damage, 4 for a moment that
    can't be reached.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    previous
        The base that it is folded from: auto, or the address of its folder.
    identity
        File of the age identities that open encrypted segments; workers must reach it by the same path.
    buckets
        Into how many parts keys are hashed, each a task of Spark's. Default: one for every 32 MB that are read.
    max_control_bytes
        Bytes of control entries that may be in memory at once.
    log_file
        Where Spark's own output goes. Default: WAL_DIR.snapshot.log; in the folder for temporary files for an object store.
    json
        Print one JSON document.
    """
    if buckets is not None and not 1 <= buckets <= BUCKETS_MAX:
        raise Usage(f"--buckets is between 1 and {BUCKETS_MAX}")
    if max_control_bytes < 1:
        raise Usage("--max-control-bytes is at least 1")
    scratch = publishers.scratch if publishers is not None else None
    if scratch is not None and not scratch.is_dir():
        raise Usage(f"--scratch {scratch} is no folder")
    given = moment or MomentOptions()
    asked = None if given == MomentOptions() else given.asked()
    if asked is not None and asked.exact_entry:
        raise Usage("--exact-entry: a base ends with a whole transaction")
    check_installed()
    from headrace.pipeline.bases.making import BaseTerms

    _create(
        wal_dir,
        asked,
        BaseTerms(identity_of(identity), previous, buckets, max_control_bytes),
        publishers or PublisherOptions(),
        spark or SparkOptions(),
        log_file=log_file,
        as_json=json,
    )


def _create(
    wal_dir: str,
    asked: Asked | None,
    terms: BaseTerms,
    publishers: PublisherOptions,
    options: SparkOptions,
    *,
    log_file: Path | None,
    as_json: bool,
) -> None:
    from headrace.archive.files.folder import Folder
    from headrace.pipeline.bases.making import Created, known_base, make_base, planned
    from headrace.pipeline.session import open_session, stop_session

    # Before Spark is started for nothing.
    middle = publishers.from_publishers
    _, found = planned(wal_dir, terms.identity, asked, terms.previous, middle=middle)
    folder = Folder(wal_dir)
    if (known := known_base(folder, found.target_lsn)) is not None:
        _print(Created(known, False, 0, 0, 0.0), as_json=as_json)
        return
    log = log_file if log_file is not None else _log_of(folder.local)
    short = (found.base is None or middle) and sum(one.size for one in found.segments) < SHORT_BYTES_MAX
    settings = options.session("headrace snapshot create", log, checkpoint="", short_lived=short)
    tell(f"starting Spark; its own output goes to {log}")
    session = open_session(settings)
    try:
        with rate_progress("folding") as told, publishers.publishers(folder.local) as asking:
            made = make_base(
                session,
                wal_dir,
                terms,
                at=asked,
                publishers=asking,
                progress=lambda now: told(now.bytes_done, now.bytes_total),
            )
    finally:
        stop_session(session)
    _print(made, as_json=as_json)


def _log_of(archive: Path | None) -> Path:
    if archive is None:
        return Path(tempfile.gettempdir(), "headrace.snapshot.log")
    return archive.with_name(f"{archive.name}.snapshot.log")


def _print(made: Created, *, as_json: bool) -> None:
    print(
        msgspec.json.encode(document_of(made)).decode() if as_json else "\n".join(lines_of(made)), flush=True
    )


def document_of(made: Created) -> dict[str, Any]:
    """Return the outcome as one JSON document, with members in kebab-case."""
    manifest = made.base.manifest
    return {
        "base": made.base.path,
        "created": made.made,
        "lsn": manifest.lsn,
        "committed-at-ms": manifest.committed_at_ms,
        "previous": manifest.previous,
        "segments-from": manifest.segments_from,
        "segments-to": manifest.segments_to,
        "buckets": manifest.buckets,
        "files": len(manifest.files),
        "bytes": sum(one.size for one in manifest.files),
        "rows": manifest.rows,
        "control-entries": _control_entries(manifest),
        "feeds": [
            {
                "feed": one.feed,
                "incarnation": one.incarnation,
                "sequence-id": one.sequence_id,
                "lsn": one.lsn,
                "entries": one.entries,
            }
            for one in manifest.feeds
        ],
        "gaps": [msgspec.to_builtins(one) for one in manifest.gaps],
        "warnings": list(_warnings(made)),
        "read-bytes": made.read_bytes,
        "read-control-entries": made.read_controls,
        "seconds": round(made.seconds, 3),
    }


def lines_of(made: Created) -> Iterator[str]:
    """Say the same to a person."""
    manifest = made.base.manifest
    size = sum(one.size for one in manifest.files)
    yield f"{made.base.path}: {manifest.rows:,} rows of {len(manifest.feeds)} feeds, {size / 1e6:,.1f} MB"
    if not made.made:
        yield "it was there already; nothing was done"
        return
    below = f"the base at lsn={manifest.previous}" if manifest.previous else "the beginning of the log"
    rate = made.read_bytes / 1e6 / made.seconds if made.seconds else 0
    yield f"folded from {below} in {made.seconds:,.1f} s ({rate:,.0f} MB/s)"
    for gap in manifest.gaps:
        yield f"it lacks what is missing between lsn={gap.after_lsn} and lsn={gap.before_lsn}: {'; '.join(gap.reasons)}"
    yield from _warnings(made)


def _control_entries(manifest: BaseManifest) -> int:
    from headrace.pipeline.bases.writing import is_control

    return sum(one.rows for one in manifest.files if is_control(one.path))


def _warnings(made: Created) -> Iterator[str]:
    from headrace.pipeline.bases.making import CONTROLS_MANY

    if made.read_controls > CONTROLS_MANY:
        kept = _control_entries(made.base.manifest)
        yield (
            f"{made.read_controls:,} control entries were in memory at once, 1 to 3 KB each, and {kept:,} of them are kept: "
            f"make bases more often, so that fewer come at once"
        )
