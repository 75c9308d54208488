"""Replication slots: made, dropped, taken by one session at a time, and moved forward durably as their clients confirm.

A slot is a subscriber: its place is a row of the subscribers, so it holds retention, lags and expires as they do.
Everything is called from the one asyncio loop that also uses the log; what blocks is done in worker threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from headrace.access.grants import Grant
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, MetadataCorrupt
from headrace.log.log import Log
from headrace.log.metadata.contract import SlotMove, SlotRow, SubscriberRow
from headrace.log.metadata.rows import slot_subscriber
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread
from headrace.server.guard import StreamRights
from headrace.server.pg import slot_errors as refused
from headrace.server.pg.moves import Moves
from headrace.server.pg.slot_views import (
    SlotOptions,
    SlotView,
    check_place,
    options_of,
    places_of,
    usable_place,
    view_of,
)
from headrace.server.pg.sqlstate import PgError
from headrace.server.pg.temporary import TemporarySlots
from headrace.server.pg.terms import PgTerms
from headrace.server.pg.walking import find_beginning
from headrace.server.streams.places import Subscriber

logger = get_logger("server.pg")

HELD_MS: Final = 60_000
"""For so long a slot stays in use at a server that does not say so again: another one of the store may take it then."""
NOTE_EVERY_S: Final = 15.0
"""How often it is written down which slots are in use, and that they are there."""
SEEN_PARTS: Final = 4
"""And at least so many times within ``subscriber-expiry``."""
LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether another server has let go of a slot that is waited for."""
RETRY_S: Final = 1.0
"""The pause after a write of confirmed positions that failed."""


@dataclass(eq=False, slots=True)
class Held:
    """A slot in use. ``position``: confirmed up to there; ``place``: what its stream begins behind, and holds.

    ``end`` ends its stream: another server has the slot, or it was dropped there; ``gone`` says so then, and nothing is
    confirmed any more. ``released``: its use is ending.
    """

    row: SlotRow
    options: SlotOptions
    pid: int
    place: Lsn
    position: int
    end: Callable[[], None]
    gone: PgError | None = None
    released: bool = False

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
        self._taking: set[str] = set()
        self._temporary = TemporarySlots()
        self._released = asyncio.Condition()
        self._moves = Moves(lambda moves: self._rows.move(moves, clock.wall_ms()), self._refused)
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to note which slots are there; temporary ones of sessions that are no more are dropped."""
        for row in await asyncio.to_thread(self._rows.all):
            if options_of(row).temporary and not self._is_held_elsewhere(row):
                await asyncio.to_thread(self._rows.drop, row.name, row.slot_id)
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
        self,
        name: str,
        plugin: str,
        options: SlotOptions,
        grant: Grant,
        rights: StreamRights | None,
        *,
        pid: int = 0,
        warn: Callable[[PgError], None] = lambda _: None,
    ) -> SlotRow:
        """Make a slot at the journal's end; PgError: 42710 where the name is taken, 53400 where there are too many.

        ``pid``: of the session that asks; a temporary slot is its alone. ``warn`` is called with what its maker should know.
        """
        known = await asyncio.to_thread(self._rows.all)
        if len(known) >= self._terms.slots_max:
            raise refused.too_many()
        own = sum(row.subject == grant.subject for row in known)
        if own >= self._terms.subject_slots_max and not grant.may_administer():
            raise refused.too_many(own)
        begin = await in_thread(partial(find_beginning, self._log.store, rights))
        held_until_ms = self._clock.wall_ms() + HELD_MS if options.temporary else 0
        row = SlotRow(
            name,
            str(uuid.uuid4()),
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
            raise refused.name_taken(name)
        if options.temporary:
            self._temporary.add(row, pid)
        logger.info("replication slot made", slot=name, plugin=plugin, subject=grant.subject)
        if not begin.is_whole:
            warn(refused.may_be_torn())
        return row

    async def all(self, grant: Grant) -> list[SlotView]:
        """Return the slots that ``grant`` may use, by name."""
        await self.settle()
        rows = [row for row in await asyncio.to_thread(self._rows.all) if _may_use(grant, row)]
        return await asyncio.to_thread(self._views, rows)

    async def one(self, name: str, grant: Grant) -> SlotView | None:
        """Return a slot that ``grant`` may use; None if there is none. MetadataCorrupt if its place can't be read."""
        view = next((view for view in await self.all(grant) if view.row.name == name), None)
        if view is not None and view.lost is None:
            check_place(self._log, view.row)
        return view

    async def drop(self, name: str, grant: Grant, *, pid: int = 0, wait: bool = False) -> None:
        """Drop a slot; PgError: 42704 where there is none, 55006 while it is in use, or another session's temporary one.

        ``pid``: of the session that asks. With ``wait`` the use's end is waited for, without end, at other servers too; that
        may be cancelled.
        """
        while self._is_in_use(row := await self._known(name, grant), pid):
            if not wait:
                raise self._in_use(row)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S), self._released:
                    await self._released.wait()
        self._taking.add(name)  # nobody begins to use what goes
        try:
            is_gone = await self._drop(name, row.slot_id)
        finally:
            self._taking.discard(name)
        if not is_gone:
            raise refused.missing(name)

    # -- in use -------------------------------------------------------------------------------------------------------

    async def take(self, name: str, grant: Grant, pid: int, end: Callable[[], None]) -> Held:
        """Begin to use a slot; :meth:`release` ends that, ``end`` its stream. From now on it was seen, durably.

        PgError: 42704 (none), 55006 (in use), 55000 (lost). MetadataCorrupt if its place can't be read.
        """
        known = await self._known(name, grant)
        if name in self._held or self._temporary.pid_of(known) not in {None, pid}:
            raise self._in_use(known)
        if name in self._taking:
            raise refused.active(name, "another session")
        self._taking.add(name)
        try:
            await self.settle()
            # Nobody drops what it needs between the look at its place and the note that it is there.
            row, place = await in_thread(partial(self._log.store.without_drops, partial(self._claim, name)))
        except BaseException:
            await self._give_back(known)
            raise
        finally:
            self._taking.discard(name)
        held = self._held[name] = Held(row, options_of(row), pid, place, row.position, end)
        return held

    def _claim(self, name: str) -> tuple[SlotRow, Lsn]:
        """Find a slot's place, write down that it is in use here, and that it was seen. Blocks; it may be done twice."""

        def claimed(row: SlotRow) -> SlotRow:
            if self._is_held_elsewhere(row):
                raise self._in_use(row)
            return row._replace(holder=self._holder, held_until_ms=self._clock.wall_ms() + HELD_MS)

        self._log.store.refresh()  # another server may have dropped what it needs
        row = self._rows.one(name)
        if row is None:
            raise refused.missing(name)
        if self._is_held_elsewhere(row):
            raise self._in_use(row)
        place = usable_place(self._log, row)
        row = self._rows.change(name, claimed)
        if row is None:
            raise refused.missing(name)
        self._rows.move([SlotMove(name, row.slot_id, self._holder, 0, "")], self._clock.wall_ms())
        return row, place

    async def release(self, held: Held) -> None:
        """End the use of a slot; what was confirmed is durable afterwards, if the database can be written."""
        await self.settle()
        held.released = True
        try:
            await self._give_back(held.row)  # first: whoever takes it here afterwards claims it anew
        finally:
            if self._held.get(held.row.name) is held:
                del self._held[held.row.name]
        async with self._released:
            self._released.notify_all()

    async def drop_temporary(self, pid: int) -> None:
        """Drop the temporary slots of a session that has ended."""
        for owned in self._temporary.of_session(pid):
            try:
                await self._drop(owned.name, owned.slot_id)
            except HeadraceError as error:
                logger.error("a temporary slot can't be dropped", slot=owned.name, detail=error.detail)

    def confirm(self, held: Held, position: int, hold: Lsn) -> None:
        """Note that the client of a slot has all up to ``position``, and needs nothing up to ``hold``; durable soon.

        Nothing is noted for one that is gone.
        """
        if held.gone is not None:
            return
        held.position = max(held.position, position)
        held.place = max(held.place, hold)
        row = held.row
        self._moves.put(SlotMove(row.name, row.slot_id, self._holder, held.position, str(held.place)))

    async def settle(self) -> None:
        """Wait until what was confirmed so far is durable, or could not be written."""
        await self._moves.settle()

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _note(self) -> None:
        pause_s = min(NOTE_EVERY_S, self._log.retention.subscriber_expiry_s / SEEN_PARTS)
        while True:
            await asyncio.sleep(RETRY_S if self._moves.has_failed else pause_s)
            try:
                await self.note()
            except HeadraceError as error:
                logger.error("it can't be written down which slots are in use", detail=error.detail)
            except Exception:
                logger.exception("it can't be written down which slots are in use")

    async def note(self) -> None:
        """Write down which slots are in use, and that they are there. Leases first: nothing that is slow may cost one.

        A row that is damaged stays as it is, and costs no other slot its lease.
        """
        held_now = {held.row.slot_id: held for held in self._held.values() if not held.released}
        idle = {owned.slot_id: owned.name for owned in self._temporary if owned.slot_id not in held_now}
        names = {slot_id: held.row.name for slot_id, held in held_now.items()} | idle
        for slot_id, name in names.items():
            held = held_now.get(slot_id)
            try:
                row = await asyncio.to_thread(self._rows.change, name, partial(self._renewed, slot_id))
            except MetadataCorrupt as error:
                logger.error("a slot in use has a damaged row", slot=name, detail=error.detail)
                continue
            if held is not None and not held.released:
                if row is None or (row.slot_id, row.holder) != (slot_id, self._holder):
                    self._end(held)
                self.confirm(held, held.position, held.place)
        for owned in self._temporary:
            if owned.slot_id in idle and owned.name not in self._held:  # it moves nowhere, and was seen
                self._moves.put(SlotMove(owned.name, owned.slot_id, self._holder, 0, ""))
        await self.settle()

    def _refused(self, move: SlotMove) -> None:
        held = self._held.get(move.name)
        if held is not None and not held.released and held.row.slot_id == move.slot_id:
            self._end(held)

    def _end(self, held: Held) -> None:
        """End the stream of a slot that this server has no more: what its client confirms is another one's to say."""
        if held.gone is None:
            logger.warning("a slot in use was dropped or taken over at another server", slot=held.row.name)
            held.gone = refused.taken_over(held.row.name)
            held.end()

    def _renewed(self, slot_id: str, row: SlotRow) -> SlotRow:
        if (row.slot_id, row.holder) != (slot_id, self._holder):
            return row
        return row._replace(held_until_ms=self._clock.wall_ms() + HELD_MS)

    async def _give_back(self, row: SlotRow) -> None:
        if options_of(row).temporary:  # its session has it still
            return
        try:
            await asyncio.to_thread(self._rows.change, row.name, partial(self._given_back, row.slot_id))
        except HeadraceError as error:  # it expires by itself
            logger.error("a slot can't be given back", slot=row.name, detail=error.detail)

    def _given_back(self, slot_id: str, row: SlotRow) -> SlotRow:
        is_ours = (row.slot_id, row.holder) == (slot_id, self._holder)
        return row._replace(holder="", held_until_ms=0) if is_ours else row

    def _present(self) -> list[SubscriberRow]:
        """Those in use, as memory knows them: they hold whatever the table says. Called from any thread."""
        now_ms = self._clock.wall_ms()
        return [SubscriberRow(*held.who, str(held.place), now_ms) for held in list(self._held.values())]

    def _views(self, rows: list[SlotRow]) -> list[SlotView]:
        places, found = places_of(self._log), list[SlotView]()
        for row in rows:
            held = self._held.get(row.name)
            pid = held.pid if held is not None else self._temporary.pid_of(row)
            active = pid is not None or self._is_held_elsewhere(row)
            found.append(view_of(self._log, row, places, active=active, active_pid=pid))
        return found

    async def _known(self, name: str, grant: Grant) -> SlotRow:
        row = await asyncio.to_thread(self._rows.one, name)
        if row is None:
            raise refused.missing(name)
        if not _may_use(grant, row):
            raise refused.not_yours(name)
        return row

    async def _drop(self, name: str, slot_id: str) -> bool:
        """Drop this slot, and no other one of its name. False if it is gone already."""
        self._moves.forget(name, slot_id)
        is_gone = await in_thread(partial(self._rows.drop, name, slot_id))
        self._temporary.forget(slot_id)
        if is_gone:
            logger.info("replication slot dropped", slot=name)
        async with self._released:
            self._released.notify_all()
        return is_gone

    def _is_held_elsewhere(self, row: SlotRow) -> bool:
        """A server that owns its data folder alone needs no lease: whoever held the slot before it is no more."""
        if not self._log.store.several_servers:
            return False
        return row.holder not in {"", self._holder} and row.held_until_ms > self._clock.wall_ms()

    def _is_in_use(self, row: SlotRow, pid: int) -> bool:
        """A temporary one is in use as long as it is there, for all but its own session."""
        if row.name in self._held or row.name in self._taking or self._is_held_elsewhere(row):
            return True
        return self._temporary.pid_of(row) not in {None, pid}

    def _in_use(self, row: SlotRow) -> PgError:
        held = self._held.get(row.name)
        pid = held.pid if held is not None else self._temporary.pid_of(row)
        return refused.active(row.name, f"PID {pid}" if pid is not None else "another server")


def _may_use(grant: Grant, row: SlotRow) -> bool:
    return grant.may_administer() or grant.subject == row.subject
