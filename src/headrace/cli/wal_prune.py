"""``headrace wal prune``: take away what an archive no longer needs, or say what that would be."""

from __future__ import annotations

import json as json_text
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from headrace.cli.wal_options import Flag
from headrace.errors import ArchiveUnavailable, PruneRefused, Usage
from headrace.wire.documents import rfc3339

if TYPE_CHECKING:
    from headrace.archive.moments.pruning import Fate
    from headrace.backup.pruning import Pruned

LINE_EVERY_S: Final = 10.0
"""How often a line says how far it is."""


def prune_command(
    *,
    wal_dir: str,
    retention_days: float = 7,
    buffer_days: float = 1,
    confirm: Flag = False,
    json: Flag = False,
) -> None:
    """Say which segments and base snapshots are no longer needed; with --confirm, remove them.

    Every moment of the last days stays reachable: the newest base that is older stays, and all behind it. Nothing goes
    without such a base, under a restore that runs, or while something is missing that nobody has accepted (exit code 3).

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    retention_days
        How long moments stay reachable, counted back from the newest archived entry, or from now if that is earlier.
    buffer_days
        How much longer base snapshots stay, with what follows them.
    confirm
        Remove it. Without, nothing is changed.
    json
        Print one JSON document; a refusal's is the same one, and says why in refused.
    """
    from headrace.archive.moments.pruning import Terms
    from headrace.backup.pruning import prune_once

    for name, days in (("--retention-days", retention_days), ("--buffer-days", buffer_days)):
        if not (math.isfinite(days) and days >= 0):
            raise Usage(f"{name} {days}: it is a number of days, 0 or more")
    terms = Terms(retention_days, buffer_days)
    done = prune_once(
        wal_dir, terms, confirm=confirm, now_ms=time.time_ns() // 1_000_000, progress=_progress()
    )
    if not (done.plan.segments or done.plan.bases or done.plan.accepted or done.leftovers):
        raise ArchiveUnavailable(f"{wal_dir} holds no KWAL segment and no base snapshot")
    if not json:
        _print(done)
    if done.refused:
        refusal = PruneRefused(f"nothing was removed from {wal_dir}: {done.refused}")
        refusal.members = (
            done.document()
        )  # so with --json it is the document that programs know, and code, detail, hint
        raise refusal
    if json:
        print(json_text.dumps(done.document()), flush=True)


def _progress() -> Callable[[int, int], None]:
    """Give what says on stderr, now and then, how many files are gone."""
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= LINE_EVERY_S:
            told = now
            print(f"removing: {done:,} of {total:,} files", file=sys.stderr, flush=True)

    return tell


def _print(done: Pruned) -> None:
    plan = done.plan
    verb = "removed" if done.confirmed else "would remove"
    for base in plan.bases:
        if base.base.problem:
            print(f"note: {base.base.path} can't be used: {base.base.problem}", file=sys.stderr)
    for path in [one.path for one in plan.bases_going]:
        print(f"{verb} {path}/")
    for file in [one.file for one in plan.segments_going]:
        print(f"{verb} {file}")
    if done.leftovers:
        print(f"{verb} {len(done.leftovers)} files that were left by what was cut off")
    for what, fates in (
        ("segments", [one.fate for one in plan.segments]),
        ("bases", [one.fate for one in plan.bases]),
    ):
        print(f"{what}: {_counted(fates) or 'none'}")
    reach = f"every moment from {rfc3339(plan.horizon_ms)} on stays as reachable as it is"
    anchor = f", from {plan.anchor.path} on" if plan.anchor is not None else ""
    if done.refused:
        sys.stdout.flush()  # the refusal follows on stderr
        return
    print(f"{verb} {done.bytes_going / 1e6:,.1f} MB; {reach}{anchor}")
    if not done.confirmed and (plan.segments_going or plan.bases_going or done.leftovers):
        print("Nothing was changed. Give --confirm to remove it.")


def _counted(fates: Iterable[Fate]) -> str:
    counts = Counter(fate.value for fate in fates)
    return ", ".join(f"{count:,} {fate}" for fate, count in sorted(counts.items()))
