"""What a session may carry, by its token and its ``dbname``: all feeds that the token may replicate, or those it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.access.grants import Grant
from headrace.errors import InvalidRequest
from headrace.log.contract import Store
from headrace.runtime.typed_json import decode_json
from headrace.server.guard import StreamRights
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.streams.selection import Selection

EVERYTHING: Final = frozenset({"headrace", "postgres", "*"})
"""Names of a database that mean all feeds; ``postgres`` because tools connect there where nobody named one."""
FEEDS: Final = "feeds"
KEY_PREFIX: Final = "key-prefix"


class Scope(NamedTuple):
    """Which entries a stream carries, and what of its options is the output's. ``rights`` None: all feeds.

    ``stored``: the same as it is kept beside the slot's progress; empty for everything. ``feeds`` in it are patterns
    separated by commas, several lists of them by semicolons: a feed must fit one of each.
    """

    rights: StreamRights | None
    selection: Selection
    options: Mapping[str, str]
    stored: str


def database_grant(grant: Grant, database: str) -> Grant:
    """Return ``grant`` as far as the feeds go that ``database`` names; PgError (3D000) for what is no name of a feed."""
    if database in EVERYTHING:
        return grant
    try:
        return grant.narrowed(feeds=[database])
    except InvalidRequest as error:
        raise PgError(
            SqlState.INVALID_CATALOG_NAME,
            f'database "{database[:200]}" does not exist: {error.detail}',
            hint="A database is a feed (dbname=vmapi::vm), a pattern of feeds (vmapi::*), or all of them (dbname=headrace).",
            fatal=True,
        ) from None


def check_database(store: Store, grant: Grant, database: str) -> None:
    """Raise PgError (3D000, fatal) unless there is such a feed that ``grant`` may replicate; patterns pass."""
    if database in EVERYTHING or "*" in database:
        return
    tail = store.tail(database)
    if tail is None or not grant.may_replicate(tail.tenant, tail.name):
        raise PgError(
            SqlState.INVALID_CATALOG_NAME,
            f'database "{database}" does not exist',
            hint="It is the name of a feed that this token may replicate; dbname=headrace stands for all of them.",
            fatal=True,
        )


def rights_of(store: Store, grant: Grant) -> StreamRights | None:
    """Return which feeds a stream may carry; None for all, which is no work."""
    return None if grant.may_administer() and not grant.feed_filters else StreamRights(store, grant)


def scope_of(store: Store, grant: Grant, databases: Sequence[str], options: Mapping[str, str]) -> Scope:
    """Return what a stream with these options carries: of the feeds that each of ``databases`` names.

    ``feeds``: names and patterns, separated by commas. ``key-prefix``: the start of ``key_prefix + key``; control entries
    of a feed come with it, as a table that is emptied is empty for every key. InvalidRequest.
    """
    for database in databases:
        grant = database_grant(grant, database)
    rest = dict(options)
    feeds = rest.pop(FEEDS, None)
    if feeds is not None:
        grant = grant.narrowed(feeds=[name.strip() for name in feeds.split(",")])
    selection = Selection(key_prefix=rest.pop(KEY_PREFIX, ""), controls=True)
    return Scope(rights_of(store, grant), selection, rest, _stored(selection, grant))


def _stored(selection: Selection, grant: Grant) -> str:
    if not grant.feed_filters:
        return selection.stored()
    kept = decode_json(selection.stored() or "{}", dict[str, str])
    kept["feeds"] = ";".join(map(",".join, grant.feed_filters))
    return msgspec.json.encode(kept).decode()
