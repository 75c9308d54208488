"""Checks of the log itself: the mark and the newest segment, or with ``--deep`` every byte."""

from __future__ import annotations

from headrace.cli.byte_progress import byte_progress
from headrace.cli.doctor.finding import Asked, Finding, fail, ok
from headrace.cli.log_verify import examine_folder
from headrace.log.damage import Damage
from headrace.log.files.examine import examine
from headrace.log.opening import examine_address, parse_store

HINT = "Copy the data folder first; docs/howto/damaged-log.md says how to go on."


def check_log(asked: Asked) -> list[Finding]:
    """The data folder's mark and newest segment are whole: what the next start of the server reads."""
    folder = asked.data_dir
    if folder is None or not (folder / "journal").is_dir():
        return []
    if asked.deep:
        with byte_progress("checking") as progress:
            verdict = examine_folder(folder, progress=progress)
        found = [_damage(one) for one in verdict.damages]
        return found or [
            ok(f"{folder}: all {verdict.entries:,} entries in {verdict.segments} segments are whole")
        ]
    findings = examine(folder, newest=True)
    findings.close()
    found = [_damage(one) for one in findings.damages]
    if findings.is_end_doubtful:
        found.append(
            fail(
                f"{folder}: the journal's end is doubtful",
                "`headrace log repair` shows the ways.",
                "writer-stopped",
            )
        )
    return found or [ok(f"{folder}: the mark and the newest segment are whole (--deep reads every byte)")]


def check_store(asked: Asked) -> list[Finding]:
    """The log in a database can be reached, and with ``--deep`` every frame of it is whole."""
    if asked.store is None:
        return []
    address = parse_store(asked.store)
    if not asked.deep:
        from headrace.log.postgres.connection import connect, parse_address

        connect(parse_address(address.text)).close()
        return [ok(f"{address} can be used (--deep reads every byte)")]
    with byte_progress("checking") as progress:
        verdict = examine_address(address, progress=progress)
    found = [_damage(one) for one in verdict.damages]
    return found or [ok(f"{address}: all {verdict.entries:,} entries are whole")]


def _damage(one: Damage) -> Finding:
    return fail(f"{one.kind} at {one.where}: {one.detail}", HINT, "journal-corrupt")
