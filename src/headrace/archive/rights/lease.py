"""A right in an object store that one process has at a time: numbered objects ``{stem}-{number}.json``, the greatest counts.

Who makes the next number, by a put that fails if it is there, has the right. It makes the next one again and again, and
takes the one before away. The greatest stays for ever, even when the right is given up, so that no number ever counts
twice. A right whose number has not moved for a while, by the clock of who waits for it, is abandoned. No two clocks are
compared. A process that was stopped, for however long, finds out at its next step: the number that it would make is there
already, or is not the greatest.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import create, put_new, remove
from headrace.archive.rights.processes import ProcessMark, has_ended, this_process
from headrace.errors import ArchiveConflict, ArchiveOwned, ArchiveUnavailable, HeadraceError, SetupMissing
from headrace.runtime.logs import get_logger
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import LEASE, check_readable

LEASE_S: Final = 30.0
"""A number is moved three times in so many seconds."""
_PATIENCE: Final = 1.5
"""How many leases a number must stand still to be abandoned: clocks may run a little apart."""
_LOOK_S: Final = 0.2
_NAME: Final = re.compile(r"(.+)-(\d{16})\.json")

_log = get_logger("archive")


class Holder(msgspec.Struct, frozen=True, rename="kebab"):
    """What one of the objects says: who has the right, or gave it up (``released``). ``holder``: its own mark."""

    written_as: int
    readable_from: int
    what: str
    holder: str
    number: int
    lease_s: float
    process: ProcessMark
    released: bool = False

    def __str__(self) -> str:
        return f"{self.what}, {self.process}"


class Standing(NamedTuple):
    """The greatest number of a right, and who made it."""

    number: int
    holder: Holder


class Lease:
    """The right ``stem`` in the folder, until :meth:`release` or until the process ends; a thread keeps it.

    ``what`` says in messages to others who has it. ``unique``: nobody else will ever ask for this right, so nothing is left
    of it when it is given up. ArchiveOwned, naming who has it, if that one is alive: a killed one of another machine is
    waited for, one and a half leases. SetupMissing if the store does not keep puts apart; ArchiveUnavailable.
    """

    def __init__(
        self, folder: Folder, stem: str, what: str, *, lease_s: float = LEASE_S, unique: bool = False
    ) -> None:
        self._folder, self._stem, self._unique = folder, stem, unique
        self._lock = threading.Lock()
        self._ended: str = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = Holder(
            LEASE.written_as, LEASE.readable_from, what, uuid4().hex, 0, lease_s, this_process()
        )
        self._moved_s = 0.0
        self._number = 0 if unique else self._free_number()
        try:
            self._move()
            self._probe()
        except HeadraceError:
            self.release()
            raise
        self._thread = threading.Thread(target=self._keep, name=f"lease {stem}", daemon=True)
        self._thread.start()

    def check(self, *, lately: bool = False) -> None:
        """Return if the right is still this process's: asks the store. ArchiveOwned if not; ArchiveUnavailable.

        ``lately``: it need not ask if the answer was yes within half a lease; nobody takes a right that moved so lately.
        """
        with self._lock:
            if lately and not self._ended and time.monotonic() - self._moved_s < self._said.lease_s / 2:
                return
            self._move()

    def release(self) -> None:
        """Give the right up, and say so in the store if that can be reached; does nothing the second time."""
        self._stop.set()
        with self._lock:
            if self._ended:
                return
            with suppress(HeadraceError):
                if self._unique:
                    remove(
                        self._folder,
                        [_name(self._stem, number) for number in _numbers(self._folder, self._stem)],
                    )
                else:
                    self._said = msgspec.structs.replace(self._said, released=True)
                    self._move()
            self._ended = "was given up by this process"
        if self._thread is not None:
            self._thread.join()

    def _free_number(self) -> int:
        """Return the greatest number that there is, once nobody has the right; 0 for none."""
        alive, numbers = _watch(self._folder, f"{self._stem}-", time.sleep)
        if alive:
            raise ArchiveOwned(f"{self._folder.shown} belongs to another process: {alive[0]}")
        return numbers.get(self._stem, 0)

    def _move(self) -> None:
        """Make the next number and take those before away. ArchiveOwned if another one is in the way, or ahead."""
        if self._ended:
            raise ArchiveOwned(f"{self._folder.shown} {self._ended}")
        number, begun_s = self._number + 1, time.monotonic()
        try:
            # The same bytes each time it is tried: an answer that got lost does no harm.
            put_new(self._folder, _name(self._stem, number), [self._document(number)])
        except ArchiveConflict:
            raise self._lost() from None
        numbers = _numbers(self._folder, self._stem)
        if max(numbers, default=0) != number:
            with suppress(ArchiveUnavailable):
                remove(self._folder, [_name(self._stem, number)])
            raise self._lost()
        self._number, self._moved_s = number, begun_s
        with suppress(ArchiveUnavailable):  # the next time, then
            remove(self._folder, [_name(self._stem, older) for older in numbers if older < number])

    def _document(self, number: int) -> bytes:
        return encode_holder(msgspec.structs.replace(self._said, number=number))

    def _lost(self) -> ArchiveOwned:
        self._ended = "was taken by another process, as this one did not move for too long"
        self._stop.set()
        _log.error("lease lost", archive=self._folder.shown)
        return ArchiveOwned(f"{self._folder.shown} {self._ended}")

    def _probe(self) -> None:
        """Put other bytes under the number just made: SetupMissing if the store takes them."""
        name = _name(self._stem, self._number)
        try:
            with self._folder.reaching(name):
                create(self._folder, name, b"{}")
        except (FileExistsError, HeadraceError):
            if self._folder.read(name) == self._document(self._number):
                return
        self._ended = "can't be owned"
        with suppress(ArchiveUnavailable):
            remove(self._folder, [name])
        raise SetupMissing(
            f"{self._folder.shown}: the store puts an object over another one though it is told not to",
            hint="A backup needs a store that knows conditional writes (If-None-Match: *), such as S3 itself or MinIO.",
        )

    def _keep(self) -> None:
        while not self._stop.wait(self._said.lease_s / 3):
            try:
                self.check()
            except ArchiveOwned:
                return
            except HeadraceError as error:
                _log.warning("lease not renewed", archive=self._folder.shown, detail=error.detail)


def encode_holder(holder: Holder) -> bytes:
    """Return the bytes of the object that says so: JSON in UTF-8."""
    return msgspec.json.format(msgspec.json.encode(holder), indent=1) + b"\n"


def living(folder: Folder, prefix: str, *, wait: Callable[[float], None] = time.sleep) -> list[Holder]:
    """Return who has rights whose stem begins with ``prefix``, leaving out those that are abandoned, or given up.

    Looks at each until its number moves, or has stood still for long enough; a process of this machine that has ended is
    known at once. ArchiveUnavailable; FormatTooNew.
    """
    return _watch(folder, prefix, wait)[0]


def fence(folder: Folder, stem: str, what: str) -> bool:
    """Tell whether nobody has that right, nor will go on as if he had: False if somebody has it.

    An abandoned one is taken, by who is ``what``, and given up: a process that slept finds another one's number in its way
    when it wakes. ArchiveOwned if who has it can't be told; ArchiveUnavailable; FormatTooNew; SetupMissing.
    """
    one = _standings(folder, f"{stem}-").get(stem)
    if one is None or _is_over(one):
        return True
    try:
        Lease(folder, stem, what).release()
    except ArchiveOwned:
        return False
    return True


def _watch(folder: Folder, prefix: str, wait: Callable[[float], None]) -> tuple[list[Holder], dict[str, int]]:
    """Return who is alive, and the number of each right as it was when it was judged to be free."""
    alive: list[Holder] = []
    free: dict[str, int] = {}
    waiting = _standings(folder, prefix)
    began = time.monotonic()
    for one in waiting.values():
        if not _is_over(one):
            _log.info("watching an owner", archive=folder.shown, owner=str(one.holder))
    while True:
        stood = time.monotonic() - began
        now = _standings(folder, prefix)
        for stem, known in list(waiting.items()):
            if stem in now and now[stem].number != known.number and not _is_over(now[stem]):
                alive.append(now[stem].holder)
            elif _is_over(known) or stem not in now or stood > known.holder.lease_s * _PATIENCE:
                free[stem] = known.number
            elif _is_over(now[stem]):
                free[stem] = now[stem].number
            else:
                continue
            del waiting[stem]
        if not waiting:
            return alive, free
        wait(_LOOK_S)


def _is_over(one: Standing) -> bool:
    return one.holder.released or has_ended(one.holder.process)


def _standings(folder: Folder, prefix: str) -> dict[str, Standing]:
    """Return the greatest number of each right, by its stem."""
    greatest: dict[str, int] = {}
    for stem, number in _listed(folder, prefix):
        greatest[stem] = max(number, greatest.get(stem, 0))
    found = {}
    for stem, number in greatest.items():
        name = _name(stem, number)
        try:
            found[stem] = Standing(number, _decode(folder.read(name), folder.where(name)))
        except ArchiveUnavailable:
            if number in _numbers(folder, stem):
                raise
            return _standings(folder, prefix)  # it has moved on meanwhile
    return found


def _decode(data: bytes, where: str) -> Holder:
    try:
        holder = decode_json(data, Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArchiveOwned(
            f"{where} says who owns the archive, and can't be read: {error}",
            hint="Make sure that no agent writes to the archive, then remove this file.",
        ) from None
    check_readable(where, holder.readable_from, LEASE)
    return holder


def _numbers(folder: Folder, stem: str) -> list[int]:
    return [number for found, number in _listed(folder, f"{stem}-") if found == stem]


def _listed(folder: Folder, prefix: str) -> list[tuple[str, int]]:
    with folder.reaching():
        folder.store.invalidate_cache()
        paths = folder.store.find(folder.path(""), prefix=prefix)
    names = [str(path).rpartition("/")[2] for path in paths]
    found = [_NAME.fullmatch(name) for name in names if name.startswith(prefix)]
    return [(match[1], int(match[2])) for match in found if match is not None]


def _name(stem: str, number: int) -> str:
    return f"{stem}-{number:016d}.json"
