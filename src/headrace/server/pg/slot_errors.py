"""What is refused of slots, and what is warned of, in PostgreSQL's words and under its SQLSTATEs."""

from __future__ import annotations

from headrace.server.pg.sqlstate import PgError, SqlState


def missing(name: str) -> PgError:
    """There is no such slot."""
    return PgError(SqlState.UNDEFINED_OBJECT, f'replication slot "{name}" does not exist')


def name_taken(name: str) -> PgError:
    """There is such a slot already."""
    return PgError(SqlState.DUPLICATE_OBJECT, f'replication slot "{name}" already exists')


def active(name: str, by: str) -> PgError:
    """Somebody uses it: ``by``."""
    return PgError(SqlState.OBJECT_IN_USE, f'replication slot "{name}" is active for {by}')


def not_yours(name: str) -> PgError:
    """Another subject made it."""
    return PgError(
        SqlState.INSUFFICIENT_PRIVILEGE,
        f'replication slot "{name}" belongs to another subject',
        hint="A slot is used with tokens of the subject that made it, or with an admin's.",
    )


def too_many(own: int | None = None) -> PgError:
    """No further one can be made: of this subject, which has ``own``, or (None) of anybody."""
    said = "all replication slots are in use"
    if own is not None:
        said = f"this subject has {own} replication slots, which is the most"
    return PgError(
        SqlState.CONFIGURATION_LIMIT_EXCEEDED,
        said,
        hint="Drop one that nobody needs: SELECT * FROM pg_replication_slots shows them.",
    )


def taken_over(name: str) -> PgError:
    """Its stream ends: it is another server's now, or gone."""
    return PgError(
        SqlState.OBJECT_IN_USE,
        f'replication slot "{name}" was dropped or taken over at another server',
        hint="What was confirmed before that is kept, if the slot is there: start it again.",
    )


def may_be_torn() -> PgError:
    """A warning: the new slot may send a transaction without its beginning."""
    return PgError(
        SqlState.WARNING,
        "a transaction that is open now may come without its beginning: the journal was not looked over as far back as one "
        "may begin",
        hint="If a large one is being written, drop this slot and make it once that has ended. The page reference/pg says "
        "how far back is looked.",
    )
