"""The replication protocol's server of a process: bound before anything is opened, started and stopped in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from itertools import count
from typing import Final

from headrace.access.tls import Tls
from headrace.access.tokens import TokenVerifier
from headrace.log.log import Log
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.pg import messages as msg
from headrace.server.pg.answers import Answers
from headrace.server.pg.output.contract import Output
from headrace.server.pg.output.registry import OUTPUTS
from headrace.server.pg.output.schemas import IndexedSchemas
from headrace.server.pg.session import Server, Session
from headrace.server.pg.slots import Slots
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.wire import Wire
from headrace.server.service import Service
from headrace.server.waits import Waits

logger = get_logger("server.pg")

STOP_S_MAX: Final = 10.0
"""How long a stop waits for sessions to say that they end."""
BACKLOG: Final = 100
"""Connections that the system keeps waiting."""


class PgFace:
    """The sessions of one server at one address. Make it with a bound socket, then :meth:`start`, then :meth:`stop`."""

    def __init__(self, listener: socket.socket, tls: Tls | None, terms: PgTerms | None = None) -> None:
        """Take over ``listener``, which is bound. ``tls`` None: plain text."""
        self.host, self.port = listener.getsockname()[:2]
        self._listener = listener
        self._tls = tls
        self._terms = terms or PgTerms()
        self._server: asyncio.Server | None = None
        self._slots: Slots | None = None
        self._shared: Server | None = None
        self._waits = Waits()
        self._pids = count(1)
        self._sessions: dict[int, Session] = {}
        self._arriving: dict[int, Wire] = {}
        """Connections that have not logged in yet, the oldest first."""
        self._admitted: set[int] = set()
        """Sessions that have."""
        self._running: set[asyncio.Task[None]] = set()
        self._wires: set[Wire] = set()

    async def start(
        self,
        service: Service,
        log: Log,
        *,
        clock: Clock | None = None,
        verifier: TokenVerifier | None = None,
    ) -> None:
        """Begin to answer. Without a verifier nobody is asked for a token."""
        clock = clock or SystemClock()
        self._slots = Slots(log, clock, self._terms)
        await self._slots.start()

        def make_output(plugin: str, options: Mapping[str, str]) -> Output:
            factory = OUTPUTS.get(plugin)
            if factory is None:
                raise PgError(SqlState.UNDEFINED_OBJECT, f'output plugin "{plugin}" does not exist')
            return factory(options, IndexedSchemas(log))

        self._shared = Server(
            log=log,
            slots=self._slots,
            answers=Answers(log, self._slots),
            terms=self._terms,
            waits=self._waits,
            clock=clock,
            progress=service.progress,
            verifier=verifier,
            tls=self._tls,
            make_output=make_output,
            cancel=self._cancel,
            admit=self._admit,
        )
        self._server = await asyncio.get_running_loop().create_server(
            self._accept, sock=self._listener, backlog=BACKLOG
        )

    def begin_stop(self) -> None:
        """Let every stream end, with what it is sending at this moment."""
        self._waits.stop()

    async def stop(self) -> None:
        """End all sessions, and close the address; before the log is closed. Once stopped it does nothing more."""
        self.begin_stop()
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._listener.close()
        streams = {task for task in self._running if not task.done()}
        if streams:
            for task in streams:
                task.cancel()
            await asyncio.wait(streams, timeout=STOP_S_MAX)
        for wire in list(self._wires):
            wire.abort()
        if self._running:
            await asyncio.wait(
                self._running
            )  # a read that is under way can't be cancelled, and the log must outlive it
        slots, self._slots = self._slots, None
        if slots is not None:
            await slots.close()

    def _accept(self) -> Wire:
        wire = Wire(self._terms)
        task = asyncio.get_running_loop().create_task(self._serve(wire))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return wire

    async def _serve(self, wire: Wire) -> None:
        await wire.connected.wait()
        shared = self._shared
        if shared is None or self._waits.stopping:
            wire.write(msg.error_response(_too_many()))
            wire.close()
            return
        if len(self._arriving) >= self._terms.sessions_max:  # who says nothing keeps nobody else out
            self._arriving.pop(next(iter(self._arriving))).abort()
        pid = next(self._pids)
        session = self._sessions[pid] = Session(wire, shared, pid)
        self._arriving[pid] = wire
        self._wires.add(wire)
        try:
            await session.run()
            await wire.lost.wait()  # until then it takes memory, so it counts
        finally:
            del self._sessions[pid]
            self._arriving.pop(pid, None)
            self._admitted.discard(pid)
            self._wires.discard(wire)

    def _admit(self, pid: int) -> None:
        if len(self._admitted) >= self._terms.sessions_max:
            raise _too_many()
        self._admitted.add(pid)
        self._arriving.pop(pid, None)

    def _cancel(self, request: msg.CancelRequest) -> None:
        session = self._sessions.get(request.process_id)
        if session is not None and session.secret == request.secret:
            session.cancel()


def _too_many() -> PgError:
    return PgError(SqlState.TOO_MANY_CONNECTIONS, "sorry, too many clients already", fatal=True)
