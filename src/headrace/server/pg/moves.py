"""Confirmed positions on their way to the database: what comes while one transaction is under way waits for the next.

Used from the one asyncio loop; the database is written in worker threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from headrace.errors import HeadraceError
from headrace.log.metadata.contract import SlotMove
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread

logger = get_logger("server.pg")


class Moves:
    """The moves of one server's slots, of each slot the newest."""

    def __init__(
        self,
        write: Callable[[Sequence[SlotMove]], Sequence[SlotMove]],
        on_refused: Callable[[SlotMove], None],
    ) -> None:
        """``write`` makes moves durable, in one transaction, and returns those that fit no slot; it blocks.

        ``on_refused`` is called for each of those.
        """
        self._write_now = write
        self._on_refused = on_refused
        self._waiting: dict[str, SlotMove] = {}
        self._tried = asyncio.Event()
        """Set once what waits now was written, or could not be."""
        self._under_way: asyncio.Event | None = None
        """The same for what is being written at this moment."""
        self._writing: asyncio.Task[None] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether something waits that could not be written: :meth:`begin` tries again."""
        return bool(self._waiting) and self._writing is None

    def put(self, move: SlotMove) -> None:
        """Have a move written soon, in place of an earlier one of the same slot."""
        self._waiting[move.name] = move
        self.begin()

    def forget(self, name: str, slot_id: str) -> None:
        """Leave out what waits of a slot; another one of that name keeps its."""
        waits = self._waiting.get(name)
        if waits is not None and waits.slot_id == slot_id:
            del self._waiting[name]

    def begin(self) -> None:
        """Begin to write, if anything waits and nothing is being written."""
        if self._writing is None and self._waiting:
            self._writing = asyncio.create_task(self._write())

    async def settle(self) -> None:
        """Wait until what was put so far is durable, or could not be written.

        That is the write under way and one more at most, however much is put meanwhile.
        """
        self.begin()
        batch = self._tried if self._waiting else self._under_way
        if batch is not None:
            await batch.wait()

    async def _write(self) -> None:
        try:
            while self._waiting:
                moves, self._waiting = self._waiting, {}
                batch = self._under_way = self._tried
                self._tried = asyncio.Event()
                try:
                    for move in await in_thread(partial(self._write_now, list(moves.values()))):
                        self._on_refused(move)
                except HeadraceError as error:
                    logger.error("confirmed positions of slots can't be written", detail=error.detail)
                    self._waiting = moves | self._waiting
                    return  # the next look writes them
                finally:
                    self._under_way = None
                    batch.set()
        finally:
            self._writing = None
            if self._waiting:  # they will not be written now: nobody is to wait for that
                self._tried.set()
                self._tried = asyncio.Event()
