"""Replication slots: made, dropped, taken by one session at a time, and moved forward durably as their clients confirm.

A slot is a subscriber: its place is a row of the subscribers, so it holds retention, lags and expires as they do.
Everything is called from the one asyncio loop that also uses the log; what blocks is done in worker threads.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import msgspec

from headrace.access.grants import Grant
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, StoreUnavailable
from headrace.log.history import position_past
from headrace.log.log import Log
from headrace.log.metadata.contract import SlotMove, SlotRow, SubscriberRow
from headrace.log.metadata.rows import slot_subscriber
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread
from headrace.server.guard import StreamRights
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.walking import find_beginning, is_lost
from headrace.server.streams.places import Subscriber

logger = get_logger("server.pg")

HELD_MS: Final = 60_000
"""For so long a slot stays in use at a server that does not say so again: another one of the store may take it then."""
NOTE_EVERY_S: Final = 15.0
"""How often it is written down which slots are in use, and that they are there."""
SEEN_PARTS: Final = 4
"""And at least so many times within ``subscriber-expiry``."""
RETRY_S: Final = 1.0
"""The pause after a write of confirmed positions that failed."""


class SlotOptions(msgspec.Struct, frozen=True, rename="kebab"):
    """What a slot was made with. ``database``: the ``dbname`` of that session; its streams carry no more than it names.

    ``temporary``: it ends with the session that made it.
    """

    database: str
    temporary: bool = False


class SlotView(NamedTuple):
    """A slot as ``pg_replication_slots`` shows it. ``restart``: from there on it holds; None where its place has gone.

    ``active_pid``: of the session that uses it; None at another server, where it may be ``active`` too.
    """

    row: SlotRow
    options: SlotOptions
    active: bool
    active_pid: int | None
    restart: int | None
    lost: bool


@dataclass(eq=False, slots=True)
class Held:
    """A slot in use. ``position``: confirmed up to there; ``place``: what its stream begins behind, and holds.

    ``end`` ends its stream: another server has the slot, or it was dropped there.
    """

    row: SlotRow
    options: SlotOptions
    pid: int
    place: Lsn
    position: int
    end: Callable[[], None]

    @property
    def who(self) -> Subscriber:
        """The subscriber that it is."""
        return Subscriber(self.row.subject, slot_subscriber(self.row.name))


class Slots:
    """The slots of one log, as one server has them."""

    def __init__(self, log: Log, clock: Clock, terms: PgTerms) -> None:
        self._log = log
        self._clock = clock
        self._terms = terms
        self._rows = log.metadata.slots
        self._holder = str(uuid.uuid4())
        self._held: dict[str, Held] = {}
        self._temporary: set[str] = set()
        self._released = asyncio.Condition()
        self._moves: dict[str, SlotMove] = {}
        self._writing: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to note which slots are there; temporary ones of sessions that are no more are dropped."""
        for row in await asyncio.to_thread(self._rows.all):
            if _options(row).temporary and not self._is_held_elsewhere(row):
                await asyncio.to_thread(self._rows.drop, row.name)
        self._log.present.append(self._present)
        self._noting = asyncio.create_task(self._note())

    async def close(self) -> None:
        """Write down what was confirmed; call it before the log is closed, once the streams have ended."""
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.wait({self._noting})
        await self.settle()
        if self._present in self._log.present:
            self._log.present.remove(self._present)

    # -- made, seen, dropped ------------------------------------------------------------------------------------------

    async def create(
        self, name: str, plugin: str, options: SlotOptions, grant: Grant, rights: StreamRights | None
    ) -> SlotRow:
        """Make a slot at the journal's end; PgError: 42710 where the name is taken, 53400 where there are too many."""
        if len(await asyncio.to_thread(self._rows.all)) >= self._terms.slots_max:
            raise PgError(
                SqlState.CONFIGURATION_LIMIT_EXCEEDED,
                "all replication slots are in use",
                hint="Drop one that nobody needs: SELECT * FROM pg_replication_slots shows them.",
            )
        begin = await in_thread(partial(find_beginning, self._log.store, rights))
        held_until_ms = self._clock.wall_ms() + HELD_MS if options.temporary else 0
        row = SlotRow(
            name,
            grant.subject,
            plugin,
            msgspec.json.encode(options).decode(),
            begin.position,
            self._holder if options.temporary else "",
            held_until_ms,
        )

        def make() -> bool:
            place = max(begin.hold, self._log.store.dropped_lsn())
            return self._rows.make(row, str(place), self._clock.wall_ms())

        if not await in_thread(partial(self._log.store.without_drops, make)):
            raise PgError(SqlState.DUPLICATE_OBJECT, f'replication slot "{name}" already exists')
        if options.temporary:
            self._temporary.add(name)
        logger.info("replication slot made", slot=name, plugin=plugin, subject=grant.subject)
        return row

    async def all(self, grant: Grant) -> list[SlotView]:
        """Return the slots that ``grant`` may use, by name."""
        await self.settle()
        rows = [row for row in await asyncio.to_thread(self._rows.all) if _may_use(grant, row)]
        return await asyncio.to_thread(self._views, rows)

    async def one(self, name: str, grant: Grant) -> SlotView | None:
        """Return a slot that ``grant`` may use; None if there is none."""
        return next((view for view in await self.all(grant) if view.row.name == name), None)

    async def drop(self, name: str, grant: Grant, *, wait: bool = False) -> None:
        """Drop a slot; PgError: 42704 where there is none, 55006 while it is in use, unless that is waited for."""
        await self._known(name, grant)
        if wait:
            async with self._released:
                await self._released.wait_for(lambda: name not in self._held)
        row = await self._known(name, grant)
        if name in self._held or (self._is_held_elsewhere(row) and not _options(row).temporary):
            raise self._in_use(name)
        await self._drop(name)

    # -- in use -------------------------------------------------------------------------------------------------------

    async def take(self, name: str, grant: Grant, pid: int, end: Callable[[], None]) -> Held:
        """Begin to use a slot; :meth:`release` ends that, ``end`` its stream.

        PgError: 42704 (none), 55006 (in use), 55000 (lost).
        """
        await self._known(name, grant)
        if name in self._held:
            raise self._in_use(name)
        await self.settle()

        def claim(row: SlotRow) -> SlotRow:
            if self._is_held_elsewhere(row):
                raise self._in_use(name)
            return row._replace(holder=self._holder, held_until_ms=self._clock.wall_ms() + HELD_MS)

        row = await asyncio.to_thread(self._rows.change, name, claim)
        if row is None:
            raise _missing(name)
        try:
            place = await asyncio.to_thread(self._place, row)
        except BaseException:
            if name not in self._held:
                await self._give_back(row)
            raise
        if name in self._held:  # another session was faster
            raise self._in_use(name)
        held = self._held[name] = Held(row, _options(row), pid, place, row.position, end)
        return held

    async def release(self, held: Held) -> None:
        """End the use of a slot; what was confirmed is durable afterwards, if the database can be written."""
        await self.settle()
        try:
            await self._give_back(held.row)  # first: whoever takes it here afterwards claims it anew
        finally:
            if self._held.get(held.row.name) is held:
                del self._held[held.row.name]
        async with self._released:
            self._released.notify_all()

    async def drop_temporary(self, names: list[str]) -> None:
        """Drop the temporary slots of a session that has ended."""
        for name in names:
            try:
                await self._drop(name)
            except HeadraceError as error:
                logger.error("a temporary slot can't be dropped", slot=name, detail=error.detail)

    def confirm(self, held: Held, position: int, hold: Lsn) -> None:
        """Note that the client of a slot has all up to ``position``, and needs nothing up to ``hold``; durable soon."""
        held.position = max(held.position, position)
        held.place = max(held.place, hold)
        self._moves[held.row.name] = SlotMove(held.row.name, held.position, str(held.place))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def settle(self) -> None:
        """Wait until what was confirmed so far is durable, or could not be written."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """What comes while one transaction is under way waits for the next: one for all of it."""
        try:
            while self._moves:
                moves, self._moves = self._moves, {}
                try:
                    await asyncio.to_thread(self._rows.move, list(moves.values()), self._clock.wall_ms())
                except StoreUnavailable as error:
                    logger.error("confirmed positions of slots can't be written", detail=error.detail)
                    self._moves = moves | self._moves
                    return  # the next look writes them
        finally:
            self._writing = None

    async def _note(self) -> None:
        pause_s = min(NOTE_EVERY_S, self._log.retention.subscriber_expiry_s / SEEN_PARTS)
        while True:
            await asyncio.sleep(RETRY_S if self._moves and self._writing is None else pause_s)
            try:
                for held in list(self._held.values()):
                    self.confirm(held, held.position, held.place)
                for name in self._temporary - self._held.keys():
                    self._moves[name] = SlotMove(name, 0, "")  # it moves nowhere, and was seen
                    await asyncio.to_thread(self._rows.change, name, self._renewed)
                if self._moves and self._writing is None:
                    self._writing = asyncio.create_task(self._write())
                await self.settle()
                for held in list(self._held.values()):
                    row = await asyncio.to_thread(self._rows.change, held.row.name, self._renewed)
                    if row is None or row.holder != self._holder:
                        logger.warning("a slot in use was taken over by another server", slot=held.row.name)
                        held.end()
            except HeadraceError as error:
                logger.error("it can't be written down which slots are in use", detail=error.detail)
            except Exception:
                logger.exception("it can't be written down which slots are in use")

    def _renewed(self, row: SlotRow) -> SlotRow:
        if row.holder != self._holder:
            return row
        return row._replace(held_until_ms=self._clock.wall_ms() + HELD_MS)

    async def _give_back(self, row: SlotRow) -> None:
        if _options(row).temporary:  # its session has it still
            return
        try:
            await asyncio.to_thread(self._rows.change, row.name, self._given_back)
        except HeadraceError as error:  # it expires by itself
            logger.error("a slot can't be given back", slot=row.name, detail=error.detail)

    def _given_back(self, row: SlotRow) -> SlotRow:
        return row._replace(holder="", held_until_ms=0) if row.holder == self._holder else row

    def _present(self) -> list[SubscriberRow]:
        """Those in use, as memory knows them: they hold whatever the table says. Called from any thread."""
        now_ms = self._clock.wall_ms()
        return [SubscriberRow(*held.who, str(held.place), now_ms) for held in list(self._held.values())]

    def _views(self, rows: list[SlotRow]) -> list[SlotView]:
        places = {(row.subject, row.subscriber_id): row for row in self._log.metadata.subscribers()}
        store, found = self._log.store, list[SlotView]()
        for row in rows:
            place = places.get((row.subject, slot_subscriber(row.name)))
            held = self._held.get(row.name)
            lost = place is None or is_lost(store, Lsn.parse(place.lsn))
            restart = (
                None
                if place is None or lost
                else min(position_past(store, Lsn.parse(place.lsn)), row.position)
            )
            active = held is not None or (self._is_held_elsewhere(row) and not _options(row).temporary)
            pid = held.pid if held is not None else None
            found.append(SlotView(row, _options(row), active, pid, restart, lost))
        return found

    def _place(self, row: SlotRow) -> Lsn:
        who = (row.subject, slot_subscriber(row.name))
        stored = {(one.subject, one.subscriber_id): one for one in self._log.metadata.subscribers()}.get(who)
        if stored is None or is_lost(self._log.store, Lsn.parse(stored.lsn)):
            raise PgError(
                SqlState.NOT_IN_PREREQUISITE_STATE,
                f'can no longer get changes from replication slot "{row.name}": what it needs was dropped by retention',
                hint="Drop the slot, take a base snapshot, and make the slot anew.",
            )
        return Lsn.parse(stored.lsn)

    async def _known(self, name: str, grant: Grant) -> SlotRow:
        row = await asyncio.to_thread(self._rows.one, name)
        if row is None:
            raise _missing(name)
        if not _may_use(grant, row):
            raise PgError(
                SqlState.INSUFFICIENT_PRIVILEGE,
                f'replication slot "{name}" belongs to another subject',
                hint="A slot is used with tokens of the subject that made it, or with an admin's.",
            )
        return row

    async def _drop(self, name: str) -> None:
        self._moves.pop(name, None)
        self._temporary.discard(name)
        await self.settle()
        if await asyncio.to_thread(self._rows.drop, name):
            logger.info("replication slot dropped", slot=name)

    def _is_held_elsewhere(self, row: SlotRow) -> bool:
        """A server that owns its data folder alone needs no lease: whoever held the slot before it is no more."""
        if not self._log.store.several_servers:
            return False
        return row.holder not in {"", self._holder} and row.held_until_ms > self._clock.wall_ms()

    def _in_use(self, name: str) -> PgError:
        held = self._held.get(name)
        by = f"PID {held.pid}" if held is not None else "another server"
        return PgError(SqlState.OBJECT_IN_USE, f'replication slot "{name}" is active for {by}')


def _options(row: SlotRow) -> SlotOptions:
    return msgspec.json.decode(row.options, type=SlotOptions)


def _may_use(grant: Grant, row: SlotRow) -> bool:
    return grant.may_administer() or grant.subject == row.subject


def _missing(name: str) -> PgError:
    return PgError(SqlState.UNDEFINED_OBJECT, f'replication slot "{name}" does not exist')
