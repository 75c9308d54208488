"""What the commands on archives have in common: how they take a moment, an identity and an archive's address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, Usage

if TYPE_CHECKING:
    from headrace.archive.moments.target import Asked

Flag = Annotated[bool, Parameter(negative=())]

_TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:\d{2})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMMIT_TS_MAX: Final = (1 << 64) - 1


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MomentOptions:
    """The moment to go back to: exactly one of the four.

    Parameters
    ----------
    to_time
        A time with its offset, as 2026-02-20T09:30:00.250Z: all entries that were committed by then.
    to_lsn
        LSN of the last entry to keep. One inside an append is refused.
    to_source_time
        A source's time: everything in front of the first entry of that feed that is later.
    to_commit_ts
        A commitTs of the Simple Protocol: everything in front of the first entry of that feed that is beyond it.
    feed
        The feed of --to-source-time or --to-commit-ts, if several have such.
    exact_entry
        Keep exactly the entries up to the moment, even if that tears an append or a source transaction.
    """

    to_time: str | None = None
    to_lsn: str | None = None
    to_source_time: str | None = None
    to_commit_ts: int | None = None
    feed: str = ""
    exact_entry: Flag = False

    def asked(self) -> Asked:
        """Return the moment. Usage unless exactly one is named, and a feed only where that means something."""
        from headrace.archive.moments.target import Asked

        given = [
            name
            for name, value in (
                ("--to-time", self.to_time),
                ("--to-lsn", self.to_lsn),
                ("--to-source-time", self.to_source_time),
                ("--to-commit-ts", self.to_commit_ts),
            )
            if value is not None
        ]
        if len(given) != 1:
            said = f"{' and '.join(given)} can't be had together" if given else "no moment is named"
            raise Usage(f"{said}: give one of --to-time, --to-lsn, --to-source-time and --to-commit-ts")
        if self.feed and given[0] in {"--to-time", "--to-lsn"}:
            raise Usage(
                f"{given[0]} is a moment of all feeds: --feed goes with --to-source-time and --to-commit-ts"
            )
        if self.to_commit_ts is not None and not 0 < self.to_commit_ts <= _COMMIT_TS_MAX:
            raise Usage(f"--to-commit-ts {self.to_commit_ts}: it is a number above 0 and below 2**64")
        return Asked(
            to_time_ms=None if self.to_time is None else time_ms(self.to_time, "--to-time"),
            to_lsn=None if self.to_lsn is None else lsn_of_option(self.to_lsn, "--to-lsn"),
            to_source_time_ms=None
            if self.to_source_time is None
            else time_ms(self.to_source_time, "--to-source-time"),
            to_commit_ts=self.to_commit_ts,
            feed=self.feed,
            exact_entry=self.exact_entry,
        )


def time_ms(text: str, option: str) -> int:
    """Return a time of RFC 3339, with its offset, as UTC milliseconds; what is finer is cut off, as the log's times are.

    Usage, naming the option, for anything else: a time without an offset too, and a leap second.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise Usage(
            f"{option} {text[:80]!r}: it is a time with its offset, as 2026-02-20T09:30:00.250Z or "
            "2026-02-20T10:30:00+01:00 (RFC 3339)"
        )
    day, clock, fraction, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{offset.upper()}")
    except ValueError as error:
        raise Usage(f"{option} {text[:80]!r}: {error}") from None
    whole = (moment - _EPOCH) // timedelta(milliseconds=1)
    ms = whole + int(((fraction or "") + "000")[:3])
    if ms < 0:
        raise Usage(f"{option} {text[:80]!r}: it is before 1970")
    return ms


def lsn_of_option(text: str, option: str) -> Lsn:
    """Return an LSN; Usage, naming the option, if it is none."""
    try:
        return Lsn.parse(text)
    except InvalidRequest as error:
        raise Usage(f"{option}: {error.detail}", hint=error.advice) from None


def identity_of(identity: Path | None) -> str:
    """Return the file of age identities as archives take it: an absolute path, empty for none. Usage if it is not there."""
    if identity is None:
        return ""
    if not identity.is_file():
        raise Usage(f"--identity {identity}: there is no such file")
    return str(identity.absolute())
