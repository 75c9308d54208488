"""One session: start-up, login, then statements one after another until it ends. What goes wrong is said in a SQLSTATE."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.access.expiry import until_expired
from headrace.access.grants import EVERYTHING as EVERY_GRANT
from headrace.access.grants import Grant
from headrace.access.tls import Tls
from headrace.access.tokens import TokenVerifier
from headrace.errors import BeyondHead, Forbidden, HeadraceError, JournalCorrupt
from headrace.log.log import Log
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.guard import May, check_call
from headrace.server.pg import messages as msg
from headrace.server.pg.answers import REPORTED, Answer, Answers, Asking
from headrace.server.pg.commands import CreateSlot, DropSlot, IdentifySystem, ReadSlot, Start
from headrace.server.pg.interrupting import unless_interrupted
from headrace.server.pg.lsn import lsn_text
from headrace.server.pg.output.contract import Output
from headrace.server.pg.queries import Accepted, Select, Show, Statement, parse_statements
from headrace.server.pg.scope import check_database, database_grant, rights_of, scope_of
from headrace.server.pg.slots import Slots
from headrace.server.pg.sqlstate import PgError, SqlState, pg_error
from headrace.server.pg.streaming import StreamEnd, Streaming
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.walking import Walk
from headrace.server.pg.wire import ConnectionEnded, Wire
from headrace.server.recording import Recorder
from headrace.server.waits import Waits

logger = get_logger("server.pg")

EXTENDED: Final = frozenset({b"P", b"B", b"D", b"E", b"C", b"H", b"F"})
"""Messages of the extended query protocol, and function calls."""
PASSWORD_BYTES_MAX: Final = 64 << 10
"""PostgreSQL's bound: who has not logged in yet is not read for long."""
REQUESTS_MAX: Final = 3
"""Requests for encryption before the start-up packet: one of each kind, and one more."""


@dataclass(frozen=True, slots=True)
class Server:
    """What the sessions of one server share.

    ``cancel``: what is done with a cancel request. ``admit`` counts a session, by its pid, that has logged in; PgError
    (53300, fatal) where there are too many.
    """

    log: Log
    slots: Slots
    answers: Answers
    terms: PgTerms
    waits: Waits
    clock: Clock
    progress: Recorder
    verifier: TokenVerifier | None
    tls: Tls | None
    make_output: Callable[[str, Mapping[str, str]], Output]
    cancel: Callable[[msg.CancelRequest], None]
    admit: Callable[[int], None]


class Session:
    """A connection from its first byte to its last; :meth:`run` once."""

    def __init__(self, wire: Wire, server: Server, pid: int) -> None:
        self.pid = pid
        self.secret = secrets.randbits(32)
        self._wire = wire
        self._server = server
        self._asking: Asking | None = None
        self._replication = "false"
        self._cancelled = asyncio.Event()
        self._has_failed = False

    def cancel(self) -> None:
        """End what the session is doing at this moment, if that is a stream."""
        self._cancelled.set()

    async def run(self) -> None:
        """Serve the client until either side ends it. Raises nothing that the client did."""
        try:
            async with asyncio.timeout(self._server.terms.login_timeout_s) as login:
                startup = await self._start()
                if startup is None:
                    return
                asking = self._asking = await self._log_in(startup)
                login.reschedule(None)
            async with until_expired(asking.grant, self._server.clock):
                await self._serve(asking)
        except (ConnectionEnded, TimeoutError):
            pass
        except PgError as error:
            self._end_with(error)
        except HeadraceError as error:
            self._end_with(pg_error(error, fatal=True))
        except Exception:
            logger.exception("a session failed")
            failure = PgError(
                SqlState.INTERNAL_ERROR, "the server failed on this session; its log says why", fatal=True
            )
            self._wire.write(msg.error_response(failure))
        finally:
            self._wire.close()
            await self._server.slots.drop_temporary(self.pid)

    def _end_with(self, error: PgError) -> None:
        logger.warning("a session was ended", state=error.state, detail=error.message, peer=self._wire.peer)
        self._wire.write(msg.error_response(error))

    # -- start-up and login -------------------------------------------------------------------------------------------

    async def _start(self) -> msg.Startup | None:
        for _ in range(REQUESTS_MAX):
            asked = msg.parse_startup(await self._wire.read_startup())
            if isinstance(asked, msg.CancelRequest):
                self._server.cancel(asked)
                return None
            if isinstance(asked, msg.Startup):
                return asked
            tls = self._server.tls
            if asked.gss or tls is None or self._wire.encrypted:
                self._wire.write(b"N")
                continue
            if self._wire.has_unread:  # it would pass for something that came encrypted
                raise _violation("received unencrypted data after SSL request")
            await self._wire.start_tls(tls.ssl_context())
        raise _violation("too many requests for encryption")

    async def _log_in(self, startup: msg.Startup) -> Asking:
        parameters = dict(startup.parameters)
        user = parameters.pop("user", "")
        if not user:
            raise PgError(
                SqlState.INVALID_AUTHORIZATION,
                "no PostgreSQL user name specified in startup packet",
                fatal=True,
            )
        database = parameters.pop("database", "") or user
        self._replication = parameters.pop("replication", "false").lower()
        unknown = [name for name in parameters if name.startswith("_pq_.")]
        if startup.minor or unknown:
            self._wire.write(msg.negotiate_version(unknown))
        grant = await self._authenticate()
        check_call(grant, May.REPLICATE)
        self._server.admit(self.pid)
        own = database_grant(grant, database)
        await self._server.log.refresh()
        check_database(self._server.log.store, grant, database)
        settings = {"session_authorization": user, "application_name": parameters.get("application_name", "")}
        rights = rights_of(self._server.log.store, own)
        asking = Asking(user, database, grant, rights, self.pid, settings, self._warn)
        self._greet(asking)
        return asking

    async def _authenticate(self) -> Grant:
        """Return what the client may do; over an unencrypted connection no token is asked for, nor taken.

        A server that has TLS takes nobody in clear: who does not ask for TLS would not be asked for a certificate either.
        """
        if self._server.tls is not None and not self._wire.encrypted:
            raise PgError(
                SqlState.INVALID_AUTHORIZATION,
                "this server takes no session, and no token, over an unencrypted connection",
                hint="Connect with sslmode=require or better.",
                fatal=True,
            )
        verifier = self._server.verifier
        if verifier is None:
            return EVERY_GRANT
        if not self._wire.encrypted:
            raise PgError(
                SqlState.INVALID_AUTHORIZATION,
                "this server asks for a bearer token, and takes none over an unencrypted connection",
                hint="The server needs --tls-cert and --tls-key; then connect with sslmode=require or better.",
                fatal=True,
            )
        self._wire.write(msg.authentication(3))
        kind, body = await self._wire.read_message(PASSWORD_BYTES_MAX)
        if kind != b"p":
            raise _violation("expected a password message")
        grant = await verifier.verify(msg.parse_string(body))
        if not grant.roles:
            raise Forbidden("this token names no role (publisher, listener, replication or admin)")
        return grant

    def _greet(self, asking: Asking) -> None:
        answers = self._server.answers
        parts = [msg.authentication(0)]
        parts += [
            msg.parameter_status(shown, answers.setting(asking, name)) for shown, name in REPORTED.items()
        ]
        parts += [msg.parameter_status(name, value) for name, value in asking.settings.items()]
        parts += [msg.backend_key(self.pid, self.secret), msg.ready()]
        self._wire.write(b"".join(parts))

    # -- statements ---------------------------------------------------------------------------------------------------

    async def _serve(self, asking: Asking) -> None:
        while True:
            kind, body = await self._wire.read_message()
            if kind == b"X":
                return
            if kind == b"S":
                self._has_failed = False
                self._wire.write(msg.ready())
            elif kind == b"Q":
                if await self._query(asking, body) is StreamEnd.TERMINATED:
                    return
            elif kind in EXTENDED:
                self._refuse_extended()
            elif kind not in {b"d", b"c", b"f"}:  # what is left of a stream that the server has ended
                raise _violation(f"invalid frontend message type {kind[0]}")
            await self._drain()

    async def _drain(self) -> None:
        """Wait until the client has taken what was answered; TimeoutError for one that does not."""
        async with asyncio.timeout(self._server.terms.sender_timeout_s):
            await self._wire.drain()

    def _refuse_extended(self) -> None:
        """Say so once, and pass over all up to the client's Sync, as the protocol has it."""
        if not self._has_failed:
            self._has_failed = True
            refusal = PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "extended query protocol not supported",
                hint="Send statements as simple queries, without parameters.",
            )
            self._wire.write(msg.error_response(refusal))

    async def _query(self, asking: Asking, body: bytes) -> StreamEnd | None:
        end: StreamEnd | None = None
        self._cancelled.clear()
        try:
            statements = parse_statements(msg.parse_string(body))
            if not statements:
                self._wire.write(msg.empty_query())
            for statement in statements:
                end = await self._execute(asking, statement)
                if end is StreamEnd.TERMINATED:
                    return end
                await self._drain()
        except PgError as error:
            if error.fatal:
                raise
            self._wire.write(msg.error_response(error))
        except HeadraceError as error:
            if isinstance(error, JournalCorrupt):
                await asyncio.to_thread(self._server.log.troubles.tell, JournalCorrupt, error.detail)
            self._wire.write(msg.error_response(pg_error(error)))
        self._wire.write(msg.ready())
        return end

    async def _execute(self, asking: Asking, statement: Statement) -> StreamEnd | None:
        answers = self._server.answers
        match statement:
            case Accepted(tag):
                self._wire.write(msg.command_complete(tag))
            case Show(name):
                self._answer(Answer((name,), [[answers.setting(asking, name)]]), "SHOW")
            case Select():
                found = await answers.select(asking, statement)
                self._answer(found, f"SELECT {len(found.rows)}")
            case IdentifySystem():
                self._check_walsender(statement)
                await self._identify(asking)
            case CreateSlot(name, plugin, temporary):
                self._check_walsender(statement)
                position = await answers.create(asking, name, plugin, temporary=temporary)
                names = ("slot_name", "consistent_point", "snapshot_name", "output_plugin")
                row = [name, lsn_text(position), None, plugin]
                self._answer(Answer(names, [row]), "CREATE_REPLICATION_SLOT")
            case ReadSlot(name):
                self._check_walsender(statement)
                await self._read_slot(asking, name)
            case DropSlot(name, wait):
                self._check_walsender(statement)
                dropping = self._server.slots.drop(name, asking.grant, pid=self.pid, wait=wait)
                await unless_interrupted(dropping, self._cancelled, self._wire.ended)
                self._wire.write(msg.command_complete("DROP_REPLICATION_SLOT"))
            case Start():
                self._check_walsender(statement)
                return await self._stream(asking, statement)
        return None

    def _warn(self, warning: PgError) -> None:
        self._wire.write(msg.warning(warning))

    def _answer(self, answer: Answer, tag: str) -> None:
        parts = [msg.row_description(answer.names), *map(msg.data_row, answer.rows)]
        self._wire.write(b"".join([*parts, msg.command_complete(tag)]))

    def _check_walsender(self, statement: Statement) -> None:
        """Replication commands are of sessions that said ``replication=database``, as with PostgreSQL."""
        if self._replication == "database":
            return
        if self._replication in {"true", "on", "yes", "1"}:
            if isinstance(statement, IdentifySystem):
                return
            raise PgError(
                SqlState.NOT_IN_PREREQUISITE_STATE,
                "logical decoding requires a database connection",
                hint="Connect with replication=database; physical replication is not supported.",
            )
        raise PgError(
            SqlState.SYNTAX_ERROR,
            "replication commands need a replication connection",
            hint='Connect with replication=database: psql "replication=database".',
        )

    async def _identify(self, asking: Asking) -> None:
        identity, end = await self._server.answers.system()
        database = asking.database if self._replication == "database" else None
        names = ("systemid", "timeline", "xlogpos", "dbname")
        self._answer(Answer(names, [[identity, "1", lsn_text(end), database]]), "IDENTIFY_SYSTEM")

    async def _read_slot(self, asking: Asking, name: str) -> None:
        view = await self._server.slots.one(name, asking.grant)
        row: Sequence[str | None] = [None, None, None]
        if view is not None:
            restart = view.restart if view.restart is not None else view.row.position
            row = ["logical", lsn_text(restart), "1"]
        names = ("slot_type", "restart_lsn", "restart_tli")
        self._answer(Answer(names, [row]), "READ_REPLICATION_SLOT")

    # -- the stream ---------------------------------------------------------------------------------------------------

    async def _stream(self, asking: Asking, ask: Start) -> StreamEnd:
        server = self._server
        store = server.log.store
        held = await server.slots.take(ask.name, asking.grant, self.pid, self.cancel)
        try:
            await server.log.refresh()
            start = max(ask.position, held.position)
            if start > store.end():
                raise BeyondHead(
                    f"the start {lsn_text(start)} is beyond the end of this journal, {lsn_text(store.end())}",
                    hint="This client has seen more than the log holds: the log may be an old copy. Check before you go on.",
                )
            databases = (held.options.database, asking.database)
            scope = scope_of(store, asking.grant, databases, ask.options)
            output = server.make_output(held.row.plugin, scope.options)
            walk = Walk(
                store,
                held.place,
                start,
                rights=scope.rights,
                selection=scope.selection,
                output=output,
                chunk_bytes=server.terms.chunk_bytes,
            )
            streaming = Streaming(
                self._wire,
                server.log,
                server.slots,
                held,
                walk,
                start=start,
                terms=server.terms,
                waits=server.waits,
                progress=server.progress,
                wanted=scope.stored,
                cancelled=self._cancelled,
            )
            end = await streaming.run()
        finally:
            await _to_the_end(server.slots.release(held))
        if end is StreamEnd.CLIENT_DONE:
            done = msg.copy_done() + msg.command_complete("COPY 0")
            self._wire.write(done + msg.command_complete("START_REPLICATION"))
        return end


async def _to_the_end(work: Awaitable[None]) -> None:
    """Wait for ``work`` also where the session is cancelled meanwhile: a slot must be given back."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _violation(message: str) -> PgError:
    return PgError(SqlState.PROTOCOL_VIOLATION, message, fatal=True)
