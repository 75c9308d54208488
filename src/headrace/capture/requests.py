"""What ``headrace capture copy`` asks of a running capture: a file for each request, in the folder that both know.

A request stays until capture has durably begun it (its id then stands in the source position of the feed), so a crash on
either side loses none. One that capture can't fulfil gets an answer, which whoever asked reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import ConfigInvalid
from headrace.runtime.disk import Disk
from headrace.runtime.logs import get_logger
from headrace.runtime.typed_json import decode_json

logger = get_logger("capture")

_SUFFIX: Final = ".json"
_REFUSED: Final = ".refused"
_KEPT_MS: Final = 24 * 3600 * 1000
"""Answers that nobody read are removed after so long."""


class CopyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the rows of ``database.table`` shall be copied into ``feed`` once more. ``id`` sorts by the time of asking."""

    id: str
    feed: str
    database: str
    table: str
    asked_at_ms: int


class CopyRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a request is not fulfilled: an error's code, detail and hint."""

    code: str
    detail: str
    hint: str


class CopyRequests:
    """The requests in ``state_dir``, for one feed. Asking and answering may happen in two processes at once."""

    def __init__(self, state_dir: Path, feed: str, disk: Disk) -> None:
        self.feed = feed
        self._folder = state_dir / "requests"
        self._disk = disk

    def submit(self, database: str, table: str, now_ms: int) -> CopyRequest:
        """Ask for a copy; returns once that is durable. ConfigInvalid if the folder can't be used."""
        request = CopyRequest(f"{now_ms:013d}-{secrets.token_hex(4)}", self.feed, database, table, now_ms)
        with self._usable():
            self._disk.make_folder(self._folder)
            self._disk.write_whole(self._folder / f"{request.id}{_SUFFIX}", msgspec.json.encode(request))
            for answer in self._disk.list(self._folder, _REFUSED):
                asked_ms = answer.name.partition("-")[0]
                if asked_ms.isdecimal() and int(asked_ms) < now_ms - _KEPT_MS:
                    self._disk.remove(answer)
        return request

    def waiting(self) -> list[CopyRequest]:
        """Return what was asked for this feed and not begun, in the order of asking; ConfigInvalid as :meth:`submit`.

        A file that is no request is left where it is, and logged.
        """
        with self._usable():
            if not self._disk.exists(self._folder):
                return []
            found = [self._read(path) for path in self._disk.list(self._folder, _SUFFIX)]
        return [request for request in found if request is not None and request.feed == self.feed]

    def done(self, request_id: str) -> None:
        """Forget a request that has begun: its id must be durable in the feed's source position. Safe to repeat."""
        with self._usable():
            if self._disk.exists(self._folder):
                self._disk.remove(self._folder / f"{request_id}{_SUFFIX}")

    def refuse(self, request_id: str, refusal: CopyRefusal) -> None:
        """Answer a request that can't be fulfilled, and forget it."""
        with self._usable():
            self._disk.write_whole(self._folder / f"{request_id}{_REFUSED}", msgspec.json.encode(refusal))
        self.done(request_id)

    def is_waiting(self, request_id: str) -> bool:
        """Tell whether a request has neither begun nor been refused."""
        with self._usable():
            return self._disk.exists(self._folder / f"{request_id}{_SUFFIX}")

    def take_refusal(self, request_id: str) -> CopyRefusal | None:
        """Return the answer to a refused request, and remove it; None if there is none."""
        path = self._folder / f"{request_id}{_REFUSED}"
        with self._usable():
            if not self._disk.exists(path):
                return None
            refusal = decode_json(self._content(path), CopyRefusal)
            self._disk.remove(path)
        return refusal

    def _read(self, path: Path) -> CopyRequest | None:
        try:
            return decode_json(self._content(path), CopyRequest)
        except FileNotFoundError:
            return None  # taken by another process meanwhile
        except msgspec.DecodeError as error:
            logger.warning("this file is no request for a copy", path=str(path), reason=str(error))
            return None

    def _content(self, path: Path) -> bytes:
        with self._disk.open(path, readonly=True) as file:
            return file.read_at(0, file.size())

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigInvalid(
                f"state-dir: {self._folder} can't be used: {error.strerror or error}",
                hint="Name a folder in which capture's user and you may make files.",
            ) from error
