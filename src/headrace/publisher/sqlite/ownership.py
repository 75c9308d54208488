"""``headrace_owner``: who marks a feed's rows and how far they are. Claimed, compared with the feed, accepted, alarmed."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from headrace.errors import AgentFenced, SourceUnavailable
from headrace.publisher.outbox.sqlite import check_format
from headrace.publisher.owner import (
    Alarm,
    FeedPlace,
    Owner,
    Resume,
    alarm_to_accept,
    check_unmoved,
    compare,
    read_alarm,
    write_alarm,
)
from headrace.publisher.sqlite.attachment import AttachmentState, read_attachments, write_control
from headrace.publisher.sqlite.connection import immediate
from headrace.publisher.sqlite.copying import begin_copy

_ENSURE: Final = "INSERT OR IGNORE INTO headrace_owner (feed) VALUES (?)"
_SELECT: Final = """
SELECT feed, agent_id, epoch, incarnation, coalesce(next_sequence_id, 0), coalesce(processed_next, 0),
    coalesce(kept_from, 0), alarm, accepted, marked_id, unit_end, unit_index, done_id, swept_id, history_id
FROM headrace_owner WHERE feed = ?"""
_BEGIN_AT: Final = """
UPDATE headrace_owner SET incarnation = :incarnation, next_sequence_id = :next, processed_next = :next, kept_from = :next
WHERE feed = :feed"""
_RAISE_EPOCH: Final = """
UPDATE headrace_owner SET epoch = :epoch, agent_id = :agent, alarm = NULL, accepted = NULL
WHERE feed = :feed AND epoch <= :epoch"""
_REMARK: Final = """
UPDATE headrace_outbox SET agent_id = :agent
WHERE id > :done AND id <= :marked AND change_feed_id = :feed AND agent_id <> :agent"""
_CONFIRM: Final = """
UPDATE headrace_outbox SET processed = 1, processed_at = :now
WHERE id > :done AND id <= :marked AND change_feed_id = :feed AND sequence_id < :below"""
_LAST_BELOW: Final = """
SELECT max(id) FROM headrace_outbox
WHERE id > :floor AND id <= :marked AND change_feed_id = :feed AND sequence_id < :below"""
_UNPROCESS: Final = """
UPDATE headrace_outbox SET processed = 0, processed_at = NULL
WHERE id > :floor AND id <= :done AND change_feed_id = :feed AND sequence_id >= :from"""
_SET_DONE: Final = "UPDATE headrace_owner SET done_id = :done, processed_next = :next WHERE feed = :feed"
_UNMARK: Final = """
UPDATE headrace_outbox SET agent_id = '', sequence_id = NULL, tx = NULL, tx_index = NULL
WHERE id > :done AND id <= :marked AND change_feed_id = :feed"""
_NEW_HISTORY: Final = """
UPDATE headrace_owner SET epoch = 0, marked_id = done_id, unit_end = done_id, unit_index = 0, history_id = done_id,
    accepted = NULL, alarm = NULL
WHERE feed = ?"""
_SET_ALARM: Final = "UPDATE headrace_owner SET alarm = ? WHERE feed = ?"
_SET_ACCEPTED: Final = "UPDATE headrace_owner SET accepted = ? WHERE feed = ?"


class SqliteOwner(Owner, frozen=True):
    """A row of ``headrace_owner``."""

    marked_id: int
    unit_end: int
    unit_index: int
    done_id: int
    swept_id: int
    history_id: int

    @property
    def progress(self) -> tuple[str | int | None, ...]:
        """See :attr:`Owner.progress`; with the outbox ids."""
        ids = self.marked_id, self.unit_end, self.unit_index, self.done_id, self.history_id
        return *super().progress, *ids


def read_owner(connection: sqlite3.Connection, feed: str) -> SqliteOwner | None:
    """Return the feed's owner row, None if no agent ever claimed it."""
    row = connection.execute(_SELECT, (feed,)).fetchone()
    if row is None:
        return None
    members = dict(zip(SqliteOwner.__struct_fields__, row, strict=True))
    stored = {name: read_alarm(members[name]) for name in ("alarm", "accepted")}
    return SqliteOwner(**{**members, **stored})


def claim(
    connection: sqlite3.Connection, feed: str, agent_id: str, place: FeedPlace, now_ms: int
) -> tuple[Resume, SqliteOwner]:
    """Make ``agent_id`` the owner at ``place.epoch``, and settle what the rows marked before mean for the feed as it is.

    One transaction: marked rows that are in the feed become processed, those of another agent carry this one's id from now
    on and keep their places. Returns how to go on, and the owner row as it stands then. Raises what
    :func:`~headrace.publisher.owner.compare` raises, with nothing changed.
    """
    with immediate(connection):
        check_format(connection)
        connection.execute(_ENSURE, (feed,))
        owner = _owner(connection, feed)
        resume = compare(owner, place)
        names: dict[str, Any] = {
            "feed": feed,
            "done": owner.done_id,
            "marked": owner.marked_id,
            "now": now_ms,
        }
        if resume.adopt:
            _adopt(connection, owner, names)
        if resume.adopt or resume.first_time:
            connection.execute(
                _BEGIN_AT, {**names, "incarnation": place.incarnation, "next": place.next_sequence_id}
            )
        elif resume.confirm_below is not None:
            names |= {"below": resume.confirm_below, "floor": owner.done_id}
            connection.execute(_CONFIRM, names)
            _set_done(connection, names, resume.confirm_below, otherwise=owner.done_id)
        elif resume.repost_from is not None:
            floor = max(owner.swept_id, owner.history_id)
            names |= {"from": resume.repost_from, "below": resume.repost_from, "floor": floor}
            connection.execute(_UNPROCESS, names)
            _set_done(connection, names, resume.repost_from, otherwise=floor)
        _take(connection, feed, agent_id, place.epoch)
        return resume, _owner(connection, feed)


def _take(connection: sqlite3.Connection, feed: str, agent_id: str, epoch: int) -> None:
    names = {"feed": feed, "agent": agent_id, "epoch": epoch}
    if connection.execute(_RAISE_EPOCH, names).rowcount == 0:
        raise AgentFenced(f"rows of {feed} were marked at a later epoch than {epoch}")
    owner = _owner(connection, feed)
    connection.execute(_REMARK, {**names, "done": owner.done_id, "marked": owner.marked_id})


def _set_done(
    connection: sqlite3.Connection, names: dict[str, Any], sequence_id: int, *, otherwise: int
) -> None:
    last = connection.execute(_LAST_BELOW, names).fetchone()[0]
    done = otherwise if last is None else last
    connection.execute(_SET_DONE, {"feed": names["feed"], "done": done, "next": sequence_id})


def _adopt(connection: sqlite3.Connection, owner: SqliteOwner, names: dict[str, Any]) -> None:
    """Begin a new history: what waits gets new places, and every attached table is emptied and copied anew."""
    connection.execute(_UNMARK, names)
    connection.execute(_NEW_HISTORY, (owner.feed,))
    for attachment in read_attachments(connection, AttachmentState.LIVE):
        if attachment.feed == owner.feed:
            write_control(connection, attachment, "schema")
            write_control(connection, attachment, "truncate")
            begin_copy(connection, attachment)


def checked_owner(
    connection: sqlite3.Connection, feed: str, agent_id: str, epoch: int, known: SqliteOwner | None
) -> SqliteOwner:
    """Return the owner row, after :func:`~headrace.publisher.owner.check_unmoved`."""
    return check_unmoved(read_owner(connection, feed), feed, agent_id, epoch, known)


def set_alarm(connection: sqlite3.Connection, feed: str, alarm: Alarm | None) -> None:
    """Store the feed's alarm, or that all is well again."""
    with immediate(connection):
        connection.execute(_ENSURE, (feed,))
        connection.execute(_SET_ALARM, (write_alarm(alarm), feed))


def accept(connection: sqlite3.Connection, feed: str, reason: str) -> Alarm:
    """Note that an operator accepts the feed as the agent found it when it stopped; the agent acts on it at its next start.

    Returns the alarm that is accepted. Raises Usage if the agent did not stop over the feed's place.
    """
    with immediate(connection):
        check_format(connection)
        accepted = alarm_to_accept(read_owner(connection, feed), feed, reason)
        connection.execute(_SET_ACCEPTED, (write_alarm(accepted), feed))
        return accepted


def _owner(connection: sqlite3.Connection, feed: str) -> SqliteOwner:
    return _there(read_owner(connection, feed), feed)


def _there(owner: SqliteOwner | None, feed: str) -> SqliteOwner:
    if owner is None:
        raise SourceUnavailable(f"the owner row of {feed} is gone")
    return owner
