"""Checks of the clocks: this machine's, the log's, the server's and the source database's."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Final

from headrace.cli.doctor.finding import Asked, Finding, fail, ok, warn
from headrace.cli.doctor.reach import alive
from headrace.entries import hlc
from headrace.log.log import LogSettings
from headrace.runtime.dsn import Dsn
from headrace.wire import mark as wire_mark
from headrace.wire.documents import rfc3339

RELEASED_MS: Final = 1_767_225_600_000
"""2026-01-01: this program is younger, so a clock below that is wrong."""
STEP_MS: Final = 100
"""A wall clock that moved so much against the monotonic one was set meanwhile."""
LEAD_MS: Final = 5_000
"""A log's clock may be ahead a little, after a wall clock that was set back."""
SKEW_MS: Final = 2_000
"""Two machines with a time service are nearer to each other."""


def check_clock(asked: Asked) -> list[Finding]:
    """The wall clock is of this century's time, and did not leap while the doctor was at work. Runs last."""
    now_ms = time.time_ns() // 1_000_000
    if now_ms < RELEASED_MS:
        return [fail(f"the wall clock says {rfc3339(now_ms)}", "Set the clock, and use a time service.")]
    passed_ms = (time.monotonic() - asked.began.monotonic_s) * 1000
    leap_ms = now_ms - asked.began.wall_ms - passed_ms
    if abs(leap_ms) > STEP_MS:
        return [
            warn(
                f"the wall clock leapt by {leap_ms:+.0f} ms within {passed_ms:.0f} ms",
                "Let a time service slew the clock; LSNs begin with the time.",
                "clock-lead",
            )
        ]
    return [ok(f"the wall clock says {rfc3339(now_ms)}, and is steady")]


def check_log_clock(asked: Asked) -> list[Finding]:
    """The newest timestamp of the log is not ahead of the wall clock."""
    mark_path = None if asked.data_dir is None else asked.data_dir / "mark"
    if mark_path is None or not mark_path.is_file():
        return []
    mark = wire_mark.decode_marks(mark_path.read_bytes(), str(mark_path))
    if mark is None:
        return []  # the check of the log says so
    lead_ms = hlc.HybridClock(mark.global_ts).lead_ms(time.time_ns() // 1_000_000)
    said = f"the log's clock is {lead_ms:,} ms ahead of the wall clock"
    if lead_ms > LogSettings().clock_lead_ms_max:
        return [fail(said, "Mend the machine's clock; appends go on once it has caught up.", "clock-lead")]
    if lead_ms > LEAD_MS:
        return [
            warn(said, "Was the wall clock set back? Entries get times of the log's clock.", "clock-lead")
        ]
    return [ok("the log's clock is not ahead of the wall clock")]


def check_server_clock(asked: Asked) -> list[Finding]:
    """The server's clock and this machine's agree: tickets and tokens have times in them."""
    answer = alive(asked)
    if answer is None or answer.date_ms is None:
        return []
    return [_agree("the server", answer.date_ms - answer.ours_ms, answer.unsure_ms)]


def check_source_clock(asked: Asked) -> list[Finding]:
    """The source database's clock and this machine's agree: entries carry the source's times."""
    agent = asked.agent
    if agent is None:
        return []
    began = time.monotonic()
    theirs_ms = source_time_ms(agent.find_dsn(os.environ))
    if theirs_ms is None:
        return []
    took_ms = int((time.monotonic() - began) * 1000)
    return [_agree("the source database", theirs_ms - time.time_ns() // 1_000_000, took_ms)]


def source_time_ms(dsn: Dsn) -> int | None:
    """Return the database's own time in UTC milliseconds; None for one that has no clock of its own (SQLite)."""
    if dsn.scheme in {"postgres", "postgresql"}:
        from headrace.publisher.postgres import connection as postgres

        with closing(postgres.connect(dsn)) as source, postgres.postgres_errors():
            row = source.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
        return None if row is None else int(row[0])
    if dsn.scheme in {"mariadb", "mysql"}:
        from headrace.publisher.mysql import connection as mysql

        with closing(mysql.connect(dsn)) as other, mysql.mysql_errors():
            ((found,),) = mysql.fetch(other, "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS UNSIGNED)")
        return int(found)
    return None


def _agree(who: str, skew_ms: int, unsure_ms: int) -> Finding:
    """``skew_ms``: how far the other clock is ahead, give or take ``unsure_ms``."""
    if abs(skew_ms) > SKEW_MS + unsure_ms:
        return warn(
            f"the clock of {who} is {skew_ms / 1000:+.1f} s ahead of this machine's",
            "Use one time service for both machines.",
            "clock-lead",
        )
    return ok(f"the clock of {who} agrees with this machine's")
