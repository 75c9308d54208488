"""One connection's life: from a position on, the binlog as appends, with copies and WATERMARKs between. For one thread.

A session ends with its first error. Whoever wants to go on asks the feed where it stands, and opens another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.capture.assembling import Assembler
from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import GtidPosition, Place
from headrace.capture.changes import APPEND_BYTES_MAX, Append
from headrace.capture.control import stopped_entry, watermark_entry
from headrace.capture.copying import Copier
from headrace.capture.ddl import TableName
from headrace.capture.effects import stopped
from headrace.capture.mariadb.connection import Source, connect
from headrace.capture.mariadb.dump import BinlogDump
from headrace.capture.mariadb.fitness import Finding, Severity
from headrace.capture.mariadb.server import (
    ServerFacts,
    check_history,
    current_moment,
    current_place,
    gtid_of,
    read_collations,
    read_server,
)
from headrace.capture.position import SourcePosition
from headrace.capture.preflight import check_source, replica_id_of
from headrace.capture.requests import CopyRefusal, CopyRequest, CopyRequests
from headrace.capture.schema_changes import SchemaChanges
from headrace.capture.settings import CaptureSettings, InitialSnapshot, Watermarks
from headrace.capture.source_schemas import SourceCatalogue
from headrace.capture.tables import Tables, Unknown
from headrace.capture.watermark import WatermarkPolicy
from headrace.errors import BinlogInvalid, HeadraceError, SourceUnavailable, SourceUnfit, TableStopped
from headrace.runtime.clock import Clock
from headrace.runtime.dsn import Dsn
from headrace.runtime.logs import get_logger
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

HEARTBEAT_S_MAX: Final = 1.0
"""So often, at least, a quiet source lets the session look at its clock."""

SILENCE_S_MAX: Final = 15.0
"""After so long without a heartbeat the source counts as lost: a machine may be busy for a while."""

LEFT_OUT: Final = "the settings leave it out"
"""Why a table is stopped in the feed that the settings wanted before."""

REQUESTS_EVERY_S: Final = 1.0
"""How often it is looked whether somebody asked for a copy."""


class FeedStand(NamedTuple):
    """What the feed says when a session begins: its source position (None: it is empty) and the schemas that it holds."""

    position: SourcePosition | None
    schemas: Sequence[TableSchema]


class CopyStand(NamedTuple):
    """How copies stand: tables that are not copied whole, how far those under way are, and what keeps them from going on."""

    remaining: int
    done: str
    hindrance: str


class CaptureSession:
    """Use: :meth:`open`, :meth:`step` …, :meth:`close`. :meth:`interrupt` may come from another thread."""

    def __init__(
        self,
        *,
        connection: Source,
        dump: BinlogDump,
        assembler: Assembler,
        unfit: list[Finding],
        copier: Copier,
        decoder: Decoder,
        watermarks: WatermarkPolicy,
        requests: CopyRequests,
        clock: Clock,
    ) -> None:
        """Join what :meth:`open` made."""
        self._connection = connection
        self._dump = dump
        self._batches = dump.batches()
        self._assembler = assembler
        self._unfit = unfit
        self._copier = copier
        self._decoder = decoder
        self._watermarks = watermarks
        self._requests = requests
        self._clock = clock
        self._requests_at = clock.monotonic()
        self._is_settled = False

    @classmethod
    def open(
        cls,
        settings: CaptureSettings,
        dsn: Dsn,
        stand: FeedStand,
        requests: CopyRequests,
        clock: Clock,
        *,
        is_first: bool = True,
    ) -> CaptureSession:
        """Connect, look whether source and feed fit, and ask for the binlog from where the feed stands.

        ``is_first``: of this process; then the settings' rules for columns are looked at too. Raises SourceUnfit naming
        all that is wrong, SourceReplaced, DsnInvalid, SourceForbidden, SourceUnavailable, FeedUnfit.
        """
        connection = connect(dsn)
        try:
            server = read_server(connection)
            unfit = _check_source(connection, settings, stand, with_rules=is_first)
            position = _begin_at(connection, server, stand.position)
            collations = read_collations(connection, server)
            catalogue = SourceCatalogue(connection, settings.cascades)
            copies = settings.initial_snapshot is not InitialSnapshot.NEVER
            unknown = Unknown.COPIED_LATER if copies else Unknown.BEGINS_HERE
            tables = Tables.restored(settings.find_selection(), unknown, position, stand.schemas)
            assembler = Assembler(
                position,
                tables,
                SchemaChanges(
                    tables,
                    catalogue,
                    {number: collation.name for number, collation in collations.items()},
                    lower_case_names=server.variables.get("lower_case_table_names") == "1",
                ),
                catalogue.covers,
                append_bytes_max=APPEND_BYTES_MAX,
                wall_ms=clock.wall_ms,
            )
            copier = Copier(
                assembler,
                catalogue,
                connect=lambda: connect(dsn),
                ask_moment=lambda: current_moment(connection),
                size=settings.chunk_size,
            )
            if copies:
                copier.plan()
            dump = BinlogDump.open(
                dsn,
                assembler.gtids,
                replica_id_of(settings),
                server_id=server.server_id,
                heartbeat_s=min(HEARTBEAT_S_MAX, settings.watermarks.interval_s),
                silence_s_max=SILENCE_S_MAX,
            )
        except BaseException:
            connection.close()
            raise
        logger.info("the capture goes on", gtid=position.gtid, file=position.file, offset=position.offset)
        return cls(
            connection=connection,
            dump=dump,
            assembler=assembler,
            unfit=unfit,
            copier=copier,
            decoder=Decoder({number: collation.charset for number, collation in collations.items()}),
            watermarks=_policy(settings.watermarks),
            requests=requests,
            clock=clock,
        )

    def step(self) -> list[Append]:
        """Do one bounded piece of work, and return what goes into the feed for it, in order.

        Waits for the source for as long as its heartbeats take. Raises SourceUnavailable, and what ends a capture: see
        :class:`~headrace.capture.assembling.Assembler`, PositionPurged, SourceReplaced.
        """
        assembler = self._assembler
        out: list[Append] = []
        if assembler.between_transactions:
            self._settle()
            out += self._take_requests()
            out += self._copier.step()
        if not out:
            out += self._read()
        if out:
            self._watermarks.note_change()
        return [*out, *self._watermark()]

    @property
    def copies(self) -> CopyStand:
        """How copies stand; not while a step is under way."""
        return CopyStand(self._copier.remaining, self._copier.done, self._copier.hindrance)

    def interrupt(self) -> None:
        """End a :meth:`step` that waits for the source; from any thread."""
        self._dump.close()

    def close(self) -> None:
        """Close all connections; no step may be under way."""
        self._copier.close()
        self._dump.release()
        if self._connection.open:
            self._connection.close()

    def _read(self) -> list[Append]:
        """Take what arrives together."""
        assembler, copier, decode = self._assembler, self._copier, self._decoder.decode
        take = assembler.take
        batch = next(self._batches, None)
        if batch is None:
            raise SourceUnavailable("the database: it ended the stream of its binlog")
        out: list[Append] = []
        for payload in batch:
            full = take(decode(payload))
            if full:
                out += full
            if copier.is_waiting and assembler.between_transactions:
                out += copier.step()
        return [*out, *assembler.flush()]

    def _watermark(self) -> list[Append]:
        """Say up to when everything is in the feed, if that is due and true."""
        policy, assembler = self._watermarks, self._assembler
        policy.held = not assembler.tables.is_whole
        now = self._clock.monotonic()
        if policy.asks(now):
            policy.answer(current_moment(self._connection))
        if not assembler.between_transactions:
            return []
        time_ms = policy.take(now, assembler.gtids)
        if time_ms is None:
            return []
        assembler.add(watermark_entry(*assembler.times(time_ms)))
        return assembler.flush()

    def _settle(self) -> None:
        """Tell, once, which tables the settings left out or have back; stop those that were found unfit at the start."""
        if self._is_settled:
            return
        self._is_settled = True
        tables = self._assembler.tables
        for name in tables.newly_stale:
            times = self._assembler.times(self._clock.wall_ms())
            self._assembler.add(stopped_entry(*name, times.commit_ts, LEFT_OUT))
            logger.warning("the settings leave a table out", database=name.database, table=name.table)
        if tables.unknown is Unknown.BEGINS_HERE:
            self._copier.take_out([name for name in tables.stale if tables.captures(name)])
        for finding in self._unfit:
            if finding.table is None:
                continue
            name = TableName(*finding.table)
            if name in tables.states and name not in tables.stopped:
                error = TableStopped(f"{finding.subject}: {finding.detail}", hint=finding.remedy)
                times = self._assembler.times(self._clock.wall_ms())
                self._assembler.add(stopped(tables, name, error, times))

    def _take_requests(self) -> list[Append]:
        """Begin the copies that somebody asked for."""
        now = self._clock.monotonic()
        if now < self._requests_at:
            return []
        self._requests_at = now + REQUESTS_EVERY_S
        out: list[Append] = []
        for request in self._requests.waiting():
            out += self._begin(request)
        return out

    def _begin(self, request: CopyRequest) -> list[Append]:
        try:
            return self._copier.ask(TableName(request.database, request.table), request.id)
        except SourceUnavailable:
            raise
        except HeadraceError as error:
            logger.warning(
                "a copy is refused", table=f"{request.database}.{request.table}", detail=error.detail
            )
            self._requests.refuse(request.id, CopyRefusal(error.code, error.detail, error.advice))
            return []


def _check_source(
    connection: Source, settings: CaptureSettings, stand: FeedStand, *, with_rules: bool
) -> list[Finding]:
    """Return what is wrong with single tables; SourceUnfit, naming everything, if this source can't be captured.

    For an empty feed that is a reason, too.
    """
    found = check_source(connection, settings, with_rules=with_rules)
    for finding in found:
        if finding.severity is Severity.WARNING and with_rules:
            logger.warning(
                "the source is not as is advised",
                subject=finding.subject,
                detail=finding.detail,
                remedy=finding.remedy,
            )
    errors = [one for one in found if one.severity is Severity.ERROR]
    fatal = errors if stand.position is None else [one for one in errors if one.table is None]
    if fatal:
        raise SourceUnfit(
            "; ".join(f"{one.subject}: {one.detail}" for one in fatal),
            hint=" ".join(one.remedy for one in fatal),
        )
    return errors


def _policy(intervals: Watermarks) -> WatermarkPolicy:
    return WatermarkPolicy(intervals.interval_s, intervals.idle_interval_s, held=True)


def _begin_at(connection: Source, server: ServerFacts, position: SourcePosition | None) -> SourcePosition:
    """Return where the stream begins: where the feed stands, or, for an empty one, at the end of the binlog."""
    if position is not None:
        gtids = GtidPosition.parse(position.gtid)
        check_history(connection, server, gtids, Place(position.file, position.offset), position.server_id)
        return position
    place = current_place(connection)
    found = gtid_of(connection, place)
    if found is None:
        raise BinlogInvalid(
            f"the server does not know which transaction ends at {place.offset} of {place.file}"
        )
    return SourcePosition(
        gtid=str(found),
        file=place.file,
        offset=place.offset,
        server_id=server.server_id,
        commit_ts=0,
        table_id=0,
    )
