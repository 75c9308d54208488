"""``headrace wal gap``: see what an archive lacks, and accept a loss that can't be made good."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from json import dumps as dump_json
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from headrace.cli.wal_options import Flag, lsn_of_option
from headrace.errors import Usage

if TYPE_CHECKING:
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.chain import Gap

_AHEAD_MS: Final = 60_000
"""How far the server's clock may be ahead of this machine's, for a loss behind the archive's end."""

app = App(name="gap", help="See what an archive lacks, and accept a loss.")


@app.command(name="ack")
def ack_command(
    *,
    wal_dir: str,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    to: str | None = None,
    all_: Flag = False,
    reason: str = "",
    json: Flag = False,
) -> None:
    """Accept gaps: restores may go over them then, and say so each time. Without ends and --all, only list the gaps.

    It is on record in the archive for good: list, plan, verify and restore show it. No moment inside a gap can be rebuilt.
    One that begins at the archive's end may be accepted, too: a backup agent then goes on behind it.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    from_
        LSN above which entries may be missing, as headrace wal list shows it. With --to.
    to
        LSN below which entries may be missing.
    all_
        Accept every gap that there is now.
    reason
        Why this is all right, for whoever restores one day.
    json
        Print one JSON document.
    """
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.reachable import gap_document, gap_shown

    if (from_ is None) != (to is None) or (all_ and from_ is not None):
        raise Usage("name both ends of a gap, --from LSN --to LSN, or all gaps with --all")
    archive = Archive.read(wal_dir)
    wanted = _wanted(archive, from_, to, all_=all_)
    if wanted and not reason.strip():
        raise Usage("say why: --reason TEXT")
    accepted = sum(_accept(archive, gap, reason.strip()) for gap in wanted)
    shown = (Archive.read(wal_dir) if wanted else archive).chain.gaps()
    if json:
        print(dump_json({"accepted": accepted, "gaps": [gap_document(one) for one in shown]}), flush=True)
        return
    for gap in shown:
        told = f"accepted by {'; '.join(gap.told)}" if gap.told else "not accepted"
        print(f"entries may be missing {gap_shown(gap)}: {told}")
    if not shown:
        print("nothing is missing")
    elif not wanted and any(not one.accepted for one in shown):
        print("To accept one: headrace wal gap ack --from LSN --to LSN --reason TEXT", file=sys.stderr)


def _wanted(archive: Archive, first: str | None, last: str | None, *, all_: bool) -> list[Gap]:
    """Return the gaps that are meant and not accepted yet; Usage if the ends are of none.

    One that begins at the archive's end is a gap to come: the server has dropped what would be archived next.
    """
    from headrace.archive.moments.chain import Gap

    gaps = archive.chain.gaps()
    if all_:
        return [one for one in gaps if not one.accepted]
    if first is None or last is None:
        return []
    ends = lsn_of_option(first, "--from"), lsn_of_option(last, "--to")
    meant = [one for one in gaps if (one.after, one.before) == ends]
    if archive.segments and ends[0] == (end := archive.segments[-1].name.last) and ends[1] > end:
        now_ms = max(time.time_ns() // 1_000_000, end.committed_at_ms)
        if ends[1].committed_at_ms > now_ms + _AHEAD_MS:
            raise Usage(
                f"--to {ends[1]} is in the future: what is not lost yet can't be accepted",
                hint="Give both ends as the agent that stopped with backup-gap names them.",
            )
        meant = [Gap(*ends, "behind the archive's end")]
    if not meant:
        raise Usage(
            f"there is no gap from {ends[0]} to {ends[1]}",
            hint="headrace wal gap ack --wal-dir DIR lists all gaps.",
        )
    return [one for one in meant if not one.accepted]


def _accept(archive: Archive, gap: Gap, reason: str) -> bool:
    """Put it on record; False if it is already, however it was worded then."""
    from headrace.archive.files.gaps import REASON_CHARS_MAX, AcceptedGap, decode_gap, encode_gap, gap_file
    from headrace.archive.files.writing import put_new

    if len(reason) > REASON_CHARS_MAX:
        raise Usage(f"--reason has {len(reason)} characters; at most {REASON_CHARS_MAX}")
    record = AcceptedGap(
        after=str(gap.after),
        before=str(gap.before),
        reason=reason,
        by=f"{_user()}@{socket.gethostname()}",
        at_ms=time.time_ns() // 1_000_000,
    )
    file = gap_file(record)
    if archive.folder.exists(file):
        known = decode_gap(archive.folder.read(file), archive.folder.where(file))
        print(f"{file} is there already: accepted by {known.by}: {known.reason}", file=sys.stderr)
        return False
    put_new(archive.folder, file, [encode_gap(record)])
    return True


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        return "unknown"
