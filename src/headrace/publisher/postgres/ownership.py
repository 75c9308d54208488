"""``headrace_owner`` and ``headrace_pass``: who marks a feed's rows, and how far they are.

All functions run in the caller's transaction.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors import AgentFenced, SourceUnavailable
from headrace.publisher.outbox.postgres import check_format
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
from headrace.publisher.postgres.attachment import (
    AttachmentState,
    is_there,
    read_attachments,
    relink,
    write_control,
)
from headrace.publisher.postgres.connection import Source
from headrace.publisher.postgres.copying import begin_copy
from headrace.publisher.postgres.look import Place

_ENSURE: Final = "INSERT INTO headrace.headrace_owner (feed) VALUES (%s) ON CONFLICT (feed) DO NOTHING"
"""Its column is named, so that it fails without the primary key: in a dump that is being restored rows are yet to come."""
_LOCK: Final = "SELECT FROM headrace.headrace_owner WHERE feed = %s FOR UPDATE"
_SELECT: Final = """
SELECT o.feed, o.agent_id, o.epoch, o.incarnation, coalesce(p.next_sequence_id, 0), coalesce(p.processed_next, 0),
    o.kept_from, o.alarm, o.accepted, o.history, coalesce(p.number, 0), coalesce(p.looked_id, 0),
    coalesce(p.late, '{}')::text[], coalesce(p.open_from::text::bigint, 0), coalesce(p.open_to::text::bigint, 0)
FROM headrace.headrace_owner AS o
LEFT JOIN LATERAL (
    SELECT * FROM headrace.headrace_pass WHERE feed = o.feed ORDER BY number DESC LIMIT 1
) AS p ON true
WHERE o.feed = %s"""
_NOTE: Final = """
INSERT INTO headrace.headrace_pass (
    feed, number, history, next_sequence_id, processed_next, looked_id, late, open_from, open_to
) VALUES (%s, %s, %s, %s, %s, %s, %s::xid8[], %s::xid8, %s::xid8)"""
_TAKE: Final = """
UPDATE headrace.headrace_owner SET epoch = %(epoch)s, agent_id = %(agent)s, alarm = NULL, accepted = NULL
WHERE feed = %(feed)s AND epoch <= %(epoch)s"""
_REMARK: Final = """
UPDATE headrace.headrace_mark SET agent_id = %(agent)s
WHERE feed = %(feed)s AND history = %(history)s AND agent_id <> %(agent)s AND first_sequence_id >= (
    SELECT first_sequence_id FROM headrace.headrace_mark
    WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id <= %(processed_next)s
    ORDER BY first_sequence_id DESC LIMIT 1)"""
_BEGIN_AT: Final = """
UPDATE headrace.headrace_owner SET incarnation = %(incarnation)s, kept_from = %(next)s WHERE feed = %(feed)s"""
_NEW_HISTORY: Final = "UPDATE headrace.headrace_owner SET epoch = 0, history = history + 1 WHERE feed = %s"
_UNMARK: Final = """
DELETE FROM headrace.headrace_mark
WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id + rows > %(processed_next)s
RETURNING tx::text::bigint"""
_RENAME_TRANSACTIONS: Final = """
UPDATE headrace.headrace_outbox SET tx = pg_current_xact_id()
WHERE change_feed_id = %(feed)s AND (
    id > %(looked)s OR tx = ANY(%(late)s::xid8[]) OR (tx >= %(from)s::xid8 AND tx < %(to)s::xid8))"""
_SHIFT: Final = 1 << 62
_ORIGIN_ROWS: Final = 1_000
_SET_APART: Final = f"""
UPDATE headrace.{{table}} SET tx = (tx::text::bigint + {_SHIFT})::text::xid8
WHERE {{feed}} = %(feed)s AND tx < '{_SHIFT}'::xid8"""
_ORIGIN: Final = f"""
SELECT mod(tx::text::bigint, 1::bigint << 32) = xmin::text::bigint AND NOT EXISTS (
    SELECT FROM (
        SELECT tx, xmin FROM headrace.headrace_outbox
        WHERE change_feed_id = %(feed)s AND tx < '{_SHIFT}'::xid8 ORDER BY id DESC LIMIT {_ORIGIN_ROWS}
    ) AS o
    WHERE mod(o.xmin::text::bigint - mod(o.tx::text::bigint, 1::bigint << 32) + (1::bigint << 32), 1::bigint << 32)
        >= 1::bigint << 31
), pg_current_xact_id()::text::bigint
FROM headrace.headrace_origin WHERE feed = %(feed)s"""
# A row's xmin is its transaction's id, or a later one of a savepoint. After a restore it is the restoring transaction's; in
# a young database that may be the very number that the origin names: then newer rows name transactions yet to come.
_FORGET_ORIGIN: Final = "DELETE FROM headrace.headrace_origin WHERE feed = %s"
_SET_ORIGIN: Final = "INSERT INTO headrace.headrace_origin (feed) VALUES (%s)"
_SET_ALARM: Final = (
    "UPDATE headrace.headrace_owner SET alarm = %s WHERE feed = %s AND alarm IS DISTINCT FROM %s"
)
_SET_ACCEPTED: Final = "UPDATE headrace.headrace_owner SET accepted = %s WHERE feed = %s"


class PostgresOwner(Owner, frozen=True):
    """A row of ``headrace_owner`` with the feed's newest row of ``headrace_pass`` (zeros where there is none)."""

    history: int
    number: int
    looked_id: int
    late: frozenset[int]
    open_from: int
    open_to: int

    @property
    def progress(self) -> tuple[str | int | None, ...]:
        """See :attr:`Owner.progress`; with the pass."""
        return *super().progress, self.history, self.number, self.looked_id

    @property
    def place(self) -> Place:
        """Where the next look begins."""
        return Place(self.looked_id, self.late, self.open_from, self.open_to)


def read_owner(connection: Source, feed: str) -> PostgresOwner | None:
    """Return how far the feed is, None if no agent ever claimed it and nothing was noted of it."""
    row = connection.execute(_SELECT, (feed,)).fetchone()
    if row is None:
        return None
    members: dict[str, Any] = dict(zip(PostgresOwner.__struct_fields__, row, strict=True))
    stored = {name: read_alarm(members[name]) for name in ("alarm", "accepted")}
    return PostgresOwner(**{**members, **stored, "late": frozenset(map(int, members["late"]))})


def lock_owner(
    connection: Source, feed: str, agent_id: str, epoch: int, known: PostgresOwner | None
) -> PostgresOwner:
    """Lock and return the feed's owner row, after :func:`~headrace.publisher.owner.check_unmoved`.

    In REPEATABLE READ, where the database refuses to lock a row that was changed since the snapshot. So it may come after
    queries of that snapshot, and a transaction that finds nothing to do needs no lock and takes no xid.
    """
    connection.execute(_LOCK, (feed,))
    return check_unmoved(read_owner(connection, feed), feed, agent_id, epoch, known)


def write_pass(
    connection: Source, owner: PostgresOwner, *, next_id: int, processed_next: int, place: Place
) -> None:
    """Note how far the feed of ``owner`` is now."""
    late = [str(xid) for xid in sorted(place.late)]
    looked = (place.looked_id, late, str(place.open_from), str(place.open_to))
    row = (owner.feed, owner.number + 1, owner.history, next_id, processed_next, *looked)
    connection.execute(_NOTE, row)


def claim(connection: Source, feed: str, agent_id: str, place: FeedPlace) -> tuple[Resume, PostgresOwner]:
    """Make ``agent_id`` the owner at ``place.epoch``, and settle what the rows marked before mean for the feed as it is.

    Marked transactions that are in the feed become processed; those of another agent carry this one's id from now on and
    keep their places. Returns how to go on, and the owner as it stands then. Raises what
    :func:`~headrace.publisher.owner.compare` raises.
    """
    check_format(connection)
    connection.execute(_ENSURE, (feed,))
    connection.execute(_LOCK, (feed,))
    owner = _owner(connection, feed)
    resume = compare(owner, place)
    owner = _settle_origin(connection, owner)
    where = owner.place
    next_id, processed_next = owner.next_sequence_id, owner.processed_next
    if resume.adopt:
        where = _adopt(connection, owner)
        owner = _owner(connection, feed)
    if resume.adopt or resume.first_time:
        next_id = processed_next = place.next_sequence_id
        connection.execute(_BEGIN_AT, {"incarnation": place.incarnation, "next": next_id, "feed": feed})
    elif resume.confirm_below is not None:
        processed_next = resume.confirm_below
    elif resume.repost_from is not None:
        processed_next = resume.repost_from
    write_pass(connection, owner, next_id=next_id, processed_next=processed_next, place=where)
    names = {"feed": feed, "agent": agent_id, "epoch": place.epoch, "history": owner.history}
    if connection.execute(_TAKE, names).rowcount == 0:
        raise AgentFenced(f"rows of {feed} were marked at a later epoch than {place.epoch}")
    connection.execute(_REMARK, {**names, "processed_next": processed_next})
    return resume, _owner(connection, feed)


def _settle_origin(connection: Source, owner: PostgresOwner) -> PostgresOwner:
    """Give the rows that are not marked a transaction of this database, if they came in a dump.

    Transaction ids mean nothing elsewhere: an old one would be taken for a new transaction's, or for one that never ends.
    So all rows, and their marks, get ids that no transaction here will ever have; only then are the rows that are not marked
    joined into this transaction, which tears none of them, and whose number an old one may have been.
    """
    row = connection.execute(_ORIGIN.encode(), {"feed": owner.feed}).fetchone()
    if row is None:
        connection.execute(_SET_ORIGIN, (owner.feed,))
        return owner
    is_here, own = row
    if is_here:
        return owner
    for table, feed in (("headrace_outbox", "change_feed_id"), ("headrace_mark", "feed")):
        statement = _SET_APART.format(table=table, feed=feed)
        connection.execute(statement.encode(), {"feed": owner.feed})
    names = {
        "feed": owner.feed,
        "looked": owner.looked_id,
        "late": [str(xid + _SHIFT) for xid in owner.late],
        "from": str(owner.open_from + _SHIFT),
        "to": str(owner.open_to + _SHIFT),
    }
    connection.execute(_RENAME_TRANSACTIONS, names)
    connection.execute(_FORGET_ORIGIN, (owner.feed,))
    connection.execute(_SET_ORIGIN, (owner.feed,))
    place = Place(owner.looked_id, frozenset({own}), 0, 0)
    next_id, processed_next = owner.next_sequence_id, owner.processed_next
    write_pass(connection, owner, next_id=next_id, processed_next=processed_next, place=place)
    return _owner(connection, owner.feed)


def _adopt(connection: Source, owner: PostgresOwner) -> Place:
    """Begin a new history: what waits gets new places, and every attached table is emptied and copied anew."""
    names = {"feed": owner.feed, "history": owner.history, "processed_next": owner.processed_next}
    waiting = {int(row[0]) for row in connection.execute(_UNMARK, names)}
    connection.execute(_NEW_HISTORY, (owner.feed,))
    relink(connection)
    for attachment in read_attachments(connection, AttachmentState.LIVE):
        if attachment.feed == owner.feed:
            write_control(connection, attachment, "schema")
            write_control(connection, attachment, "truncate")
            if is_there(connection, attachment):  # else the agent's check raises an alarm
                begin_copy(connection, attachment, after_running=True)
    return owner.place._replace(late=owner.late | waiting)


def set_alarm(connection: Source, feed: str, alarm: Alarm | None) -> None:
    """Store the feed's alarm, or that all is well again."""
    text = write_alarm(alarm)
    connection.execute(_ENSURE, (feed,))
    connection.execute(_SET_ALARM, (text, feed, text))


def accept(connection: Source, feed: str, reason: str) -> Alarm:
    """Note that an operator accepts the feed as the agent found it when it stopped; the agent acts on it at its next start.

    Returns the alarm that is accepted. Raises Usage if the agent did not stop over the feed's place.
    """
    check_format(connection)
    accepted = alarm_to_accept(read_owner(connection, feed), feed, reason)
    connection.execute(_SET_ACCEPTED, (write_alarm(accepted), feed))
    return accepted


def _owner(connection: Source, feed: str) -> PostgresOwner:
    return _there(read_owner(connection, feed), feed)


def _there(owner: PostgresOwner | None, feed: str) -> PostgresOwner:
    if owner is None:
        raise SourceUnavailable(f"the owner row of {feed} is gone")
    return owner
