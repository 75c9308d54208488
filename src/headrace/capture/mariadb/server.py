"""What a MariaDB server says of itself: settings, places in its history, whether a feed was made of that history."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from headrace.capture.binlog.event import Gtid, GtidPosition, Place
from headrace.capture.mariadb.connection import Source, fetch, source_errors
from headrace.capture.watermark import SourceMoment
from headrace.errors import SourceReplaced, SourceUnfit

_FILE_START: Final = 4
"""Every binlog file has an event that begins here."""

_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)")
_CHARSETS_BY_COLLATION_SINCE: Final = (10, 10)
"""From here on a collation may hold for several character sets, with an id in each."""

_COLLATIONS: Final = """
SELECT ID, CHARACTER_SET_NAME, FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"""
_COLLATIONS_BEFORE: Final = """
SELECT ID, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"""


class ServerFacts(msgspec.Struct, frozen=True):
    """One server as it is now. ``variables``: all global ones, by their names in lower case.

    ``server_id`` is what the operator set; ``server_uid`` (``""`` where there is none) changes with the machine and the port
    too, so it is for show. ``slaves_running``: threads that apply a primary's changes here.
    """

    version: str
    server_id: int
    server_uid: str
    hostname: str
    port: int
    slaves_running: int
    variables: Mapping[str, str]

    @property
    def release(self) -> tuple[int, int]:
        """The first two parts of the version; (0, 0) if there are none."""
        found = _VERSION.match(self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)


class Collation(NamedTuple):
    """A character set and one of its orders, such as ``latin1`` and ``latin1_swedish_ci``."""

    charset: str
    name: str


def read_server(connection: Source) -> ServerFacts:
    """Return the server's facts; needs no right. Raises SourceUnavailable."""
    with source_errors():
        variables = {
            str(name).lower(): str(value) for name, value in fetch(connection, "SHOW GLOBAL VARIABLES")
        }
        running = fetch(connection, "SHOW GLOBAL STATUS LIKE 'slaves_running'")
    return ServerFacts(
        version=variables["version"],
        server_id=int(variables["server_id"]),
        server_uid=variables.get("server_uid", ""),
        hostname=variables["hostname"],
        port=int(variables["port"]),
        slaves_running=int(running[0][1]) if running else 0,
        variables=variables,
    )


def read_collations(connection: Source, server: ServerFacts) -> dict[int, Collation]:
    """Return every collation that the server knows, by its id. Raises SourceUnavailable."""
    query = _COLLATIONS if server.release >= _CHARSETS_BY_COLLATION_SINCE else _COLLATIONS_BEFORE
    with source_errors():
        return {int(number): Collation(charset, name) for number, charset, name in fetch(connection, query)}


def current_gtid(connection: Source) -> GtidPosition:
    """Return the end of the binlog: all that was committed before this call is at or before it. Raises SourceUnavailable."""
    with source_errors():
        ((text,),) = fetch(connection, "SELECT @@GLOBAL.gtid_binlog_pos")
    return GtidPosition.parse(text)


def current_moment(connection: Source) -> SourceMoment:
    """Return the server's time, and the end of its binlog then or later. Raises SourceUnavailable."""
    with source_errors():
        ((time_ms, text),) = fetch(
            connection, "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS UNSIGNED), @@GLOBAL.gtid_binlog_pos"
        )
    return SourceMoment(int(time_ms), GtidPosition.parse(text))


def current_place(connection: Source) -> Place:
    """Return the end of the binlog as file and offset; within a consistent snapshot: the place of that. Needs no right.

    Raises SourceUnfit (the server writes no binlog), SourceUnavailable.
    """
    with source_errors():
        found = dict(fetch(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, offset = (found.get(f"Binlog_snapshot_{part}", "") for part in ("file", "position"))
    if not file:
        raise SourceUnfit("the server writes no binlog: log_bin is OFF")
    return Place(file, int(offset))


def gtid_of(connection: Source, place: Place) -> GtidPosition | None:
    """Return what the binlog held up to ``place``; None if there is no such file, or no event ends there.

    The server reads that file up to there. Raises SourceUnavailable.
    """
    with source_errors():
        ((text,),) = fetch(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.offset))
    return None if text is None else GtidPosition.parse(text)


def check_history(
    connection: Source, server: ServerFacts, position: GtidPosition, place: Place | None, server_id: int
) -> None:
    """Raise SourceReplaced unless this is the server whose binlog a feed holds up to ``position``.

    ``place`` is the same in the binlog of the server with ``server_id``. Another server id, a GTID that this server never
    had, a file that it has yet to write, and another history at the same place are noticed; a file that is gone is not:
    whether what follows is still there, the server says when it is asked for it (PositionPurged). A server that was restored
    from a copy and has since written as many transactions with as many bytes can't be told from the one that it was.
    """
    if server.server_id != server_id:
        raise SourceReplaced(
            f"the feed holds the binlog of the server with server_id {server_id}; this one has {server.server_id}"
        )
    with source_errors():
        ((state,),) = fetch(connection, "SELECT @@GLOBAL.gtid_binlog_state")
    if missing := _never_had(state, position):
        raise SourceReplaced(
            f"the feed holds {missing}, which this server never had; it has {state or 'none'}"
        )
    if place is None:
        return
    newest = current_place(connection)
    if _stem(newest.file) != _stem(place.file):
        return  # log_bin was given another name: the files tell nothing
    if place > newest:
        raise SourceReplaced(
            f"the feed goes up to {place.offset} of {place.file}, and this server's binlog only to {newest.offset} of "
            f"{newest.file}"
        )
    if gtid_of(connection, Place(place.file, _FILE_START)) is None:
        return
    found = gtid_of(connection, place)
    if found != position:
        there = "no event ends there" if found is None else f"it has {found}"
        raise SourceReplaced(
            f"the feed has {position} at {place.offset} of {place.file}; at this server, {there}"
        )


def _never_had(state: str, position: GtidPosition) -> Gtid | None:
    """Return the first GTID of ``position`` that is beyond what each server of its domain has written by ``state``."""
    last = {(one.domain, one.server): one.sequence for one in map(Gtid.parse, filter(None, state.split(",")))}
    return next(
        (one for one in position.gtids if one.sequence > last.get((one.domain, one.server), -1)), None
    )


def _stem(file: str) -> str:
    return file.rpartition(".")[0]
