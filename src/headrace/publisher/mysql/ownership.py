"""``headrace_owner``: who marks a feed's rows and how far they are. Claimed, compared with the feed, accepted, alarmed."""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import AgentFenced, SourceUnavailable
from headrace.publisher.mysql.connection import Source, execute, fetch, transaction
from headrace.publisher.outbox.mysql import check_format
from headrace.publisher.owner import (
    Alarm,
    FeedPlace,
    Owner,
    Resume,
    alarm_to_accept,
    check_kept,
    compare,
    read_alarm,
    write_alarm,
)

_ENSURE: Final = "INSERT IGNORE INTO headrace_owner (feed) VALUES (%s)"
_SELECT: Final = """
SELECT feed, agent_id, epoch, incarnation, next_sequence_id, processed_next, kept_from, alarm, accepted, history
FROM headrace_owner WHERE feed = %s"""
_BEGIN_AT: Final = """
UPDATE headrace_owner
SET incarnation = %(incarnation)s, next_sequence_id = %(next)s, processed_next = %(next)s, kept_from = %(next)s
WHERE feed = %(feed)s"""
_TAKE: Final = """
UPDATE headrace_owner SET epoch = %(epoch)s, agent_id = %(agent)s, alarm = NULL, accepted = NULL WHERE feed = %(feed)s"""
_RANGE: Final = """
WHERE change_feed_id = %(feed)s AND sequence_id >= %(from)s AND sequence_id < %(below)s AND history = %(history)s"""
_OUTBOX: Final = "headrace_outbox FORCE INDEX (headrace_outbox_place)"
_KEPT: Final = f"SELECT COUNT(*) FROM {_OUTBOX} {_RANGE}"
_REMARK: Final = f"UPDATE {_OUTBOX} SET agent_id = %(agent)s {_RANGE} AND agent_id <> %(agent)s"
_CONFIRM: Final = f"UPDATE {_OUTBOX} SET processed = 1, processed_at = %(now)s {_RANGE}"
_UNPROCESS: Final = f"UPDATE {_OUTBOX} SET processed = 0, processed_at = NULL {_RANGE}"
_UNMARK: Final = f"""
UPDATE {_OUTBOX} SET agent_id = '', sequence_id = NULL, tx = NULL, tx_index = NULL, history = 0 {_RANGE}"""
_NEW_HISTORY: Final = "UPDATE headrace_owner SET history = history + 1, epoch = 0 WHERE feed = %(feed)s"
_SET_DONE: Final = "UPDATE headrace_owner SET processed_next = %(next)s WHERE feed = %(feed)s"
_SET_ALARM: Final = "UPDATE headrace_owner SET alarm = %s WHERE feed = %s"
_SET_ACCEPTED: Final = "UPDATE headrace_owner SET accepted = %s WHERE feed = %s"


class MysqlOwner(Owner, frozen=True):
    """A row of ``headrace_owner``. ``history``: how often the feed was accepted as it was found."""

    history: int

    @property
    def progress(self) -> tuple[str | int | None, ...]:
        """See :attr:`Owner.progress`."""
        return *super().progress, self.history


def read_owner(connection: Source, feed: str, *, lock: bool = False) -> MysqlOwner | None:
    """Return the feed's owner row, None if no agent ever claimed it. ``lock``: nobody else changes it until we commit."""
    rows = fetch(connection, _SELECT + (" FOR UPDATE" if lock else ""), (feed,))
    if not rows:
        return None
    members = dict(zip(MysqlOwner.__struct_fields__, rows[0], strict=True))
    stored = {name: read_alarm(members[name]) for name in ("alarm", "accepted")}
    return MysqlOwner(**{**members, **stored})


def claim(
    connection: Source, feed: str, agent_id: str, place: FeedPlace, now_ms: int
) -> tuple[Resume, MysqlOwner]:
    """Make ``agent_id`` the owner at ``place.epoch``, and settle what the rows marked before mean for the feed as it is.

    One transaction: marked rows that are in the feed become processed, those of another agent carry this one's id from now
    on and keep their places. Returns how to go on, and the owner row as it stands then. Raises what
    :func:`~headrace.publisher.owner.compare` and ``check_kept`` raise, with nothing changed.
    """
    with transaction(connection):
        check_format(connection)
        execute(connection, _ENSURE, (feed,))
        owner = _locked(connection, feed)
        resume = compare(owner, place)
        names: dict[str, Any] = {
            "feed": feed,
            "agent": agent_id,
            "epoch": place.epoch,
            "history": owner.history,
            "now": now_ms,
            "incarnation": place.incarnation,
            "next": place.next_sequence_id,
            "from": owner.processed_next,
            "below": owner.next_sequence_id,
        }
        first = resume.confirm_below if resume.repost_from is None else resume.repost_from
        if first is not None:
            count = fetch(connection, _KEPT, {**names, "from": first})[0][0]
            resume = check_kept(owner, place, resume, first, count)
        if resume.adopt:
            execute(connection, _UNMARK, names)
            execute(connection, _NEW_HISTORY, names)
        if resume.adopt or resume.first_time:
            execute(connection, _BEGIN_AT, names)
        elif resume.confirm_below is not None:
            execute(connection, _CONFIRM, {**names, "below": resume.confirm_below})
            execute(connection, _SET_DONE, names)
        elif resume.repost_from is not None:
            execute(connection, _UNPROCESS, {**names, "from": resume.repost_from})
            execute(connection, _SET_DONE, names)
        _take(connection, names)
        return resume, _locked(connection, feed)


def _take(connection: Source, names: dict[str, Any]) -> None:
    owner = _locked(connection, names["feed"])
    if owner.epoch > names["epoch"]:
        raise AgentFenced(f"rows of {owner.feed} were marked at a later epoch than {names['epoch']}")
    execute(connection, _TAKE, names)
    waiting = {"from": owner.processed_next, "below": owner.next_sequence_id, "history": owner.history}
    execute(connection, _REMARK, {**names, **waiting})


def set_alarm(connection: Source, feed: str, alarm: Alarm | None) -> None:
    """Store the feed's alarm, or that all is well again."""
    with transaction(connection):
        execute(connection, _ENSURE, (feed,))
        execute(connection, _SET_ALARM, (write_alarm(alarm), feed))


def accept(connection: Source, feed: str, reason: str) -> Alarm:
    """Note that an operator accepts the feed as the agent found it when it stopped; the agent acts on it at its next start.

    Returns the alarm that is accepted. Raises Usage if the agent did not stop over the feed's place.
    """
    with transaction(connection):
        check_format(connection)
        accepted = alarm_to_accept(read_owner(connection, feed, lock=True), feed, reason)
        execute(connection, _SET_ACCEPTED, (write_alarm(accepted), feed))
        return accepted


def _locked(connection: Source, feed: str) -> MysqlOwner:
    owner = read_owner(connection, feed, lock=True)
    if owner is None:
        raise SourceUnavailable(f"the owner row of {feed} is gone")
    return owner
