"""Which store a log is opened on: the data folder, or a database named by its address.

One more database is one line in ``STORES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from headrace.errors import DiskReserve, DsnInvalid, JournalCorrupt, SetupMissing, WriterStopped
from headrace.log.contract import Store
from headrace.log.damage import Verdict
from headrace.log.files.store import FileStore
from headrace.log.metadata.contract import Metadata, RowDamage
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata, check_format
from headrace.log.troubles import clear_mended
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.wire.frame import Frame

STORES: Final = {
    "postgres": ("headrace.log.database", "postgres"),
    "postgresql": ("headrace.log.database", "postgres"),
}
"""Scheme of an address -> the module that opens it and looks at it (``log/database.py``), imported only when used, and the
extra that installs its driver."""


class Opened(NamedTuple):
    """A log's parts. ``volume_bytes``: the size of what the journal lies on, None where that is not known. ``found``: what
    this opening raised an alarm for, empty if it found nothing odd.
    """

    store: Store
    metadata: Metadata
    volume_bytes: int | None
    found: str = ""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """``postgresql://USER:PASSWORD@HOST/DATABASE``; what is printed of it holds no secret."""

    text: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


def parse_store(text: str) -> StoreAddress:
    """Return the address in ``text``; DsnInvalid, without any of it, for a scheme that is no store."""
    scheme, separator, _ = text.strip().partition("://")
    if not separator or scheme.lower() not in STORES:
        raise DsnInvalid(
            "--store names no store that this version knows",
            hint="Write postgresql://USER@HOST/DATABASE, or leave --store out and give --data-dir.",
        )
    try:
        parts = urlsplit(text.strip())
        shown = f"{scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    except ValueError:  # several hosts, a socket's folder
        shown = f"{scheme}://..."
    return StoreAddress(text.strip(), shown if "@" not in shown else f"{scheme}://...")


def open_files(
    data_dir: Path,
    *,
    segment_bytes: int,
    clock: Clock,
    disk: Disk | None = None,
    disk_reserve_bytes: int | None = None,
) -> Opened:
    """Open the journal and the metadata database in ``data_dir``. What recovery found odd becomes an alarm.

    An alarm of an earlier process that could not write is cleared once the journal is open and takes appends again.
    """
    check_format(data_dir / METADATA_NAME)
    disk = disk if disk is not None else Disk()
    store = FileStore(data_dir, disk=disk, segment_bytes=segment_bytes, disk_reserve_bytes=disk_reserve_bytes)
    try:
        metadata = SqliteMetadata(data_dir / METADATA_NAME)
    except BaseException:
        store.close()
        raise
    found = "; ".join(store.alarms)  # one alarm, because one that stands would be overwritten by the next
    if found:
        metadata.raise_alarm(JournalCorrupt.code, found, clock.wall_ms())
    if store.not_writable() is None:
        for kind in (WriterStopped, DiskReserve):
            metadata.clear_alarms(kind.code, agent_id="", now_ms=clock.wall_ms())
    clear_mended(metadata, clock.wall_ms())
    return Opened(store, metadata, disk.volume_bytes(data_dir), found)


def open_address(address: StoreAddress, *, segment_bytes: int, clock: Clock) -> Opened:
    """Open the log in the database at ``address``; SetupMissing if its driver is not installed, else what it raises."""
    imported = _module_of(address)
    opener = cast("Callable[[str, int], tuple[Store, Metadata]]", imported.open_store)
    store, metadata = opener(address.text, segment_bytes)
    # What stopped the writer of another server may still stop it: that one goes on showing its alarm from memory.
    metadata.clear_alarms(WriterStopped.code, agent_id="", now_ms=clock.wall_ms())
    clear_mended(metadata, clock.wall_ms())
    return Opened(store, metadata, None)


def examine_address(
    address: StoreAddress, *, feed: str | None = None, progress: Callable[[int, int], None] | None = None
) -> Verdict:
    """Look at every byte of the log in the database at ``address``; with ``feed`` entries of other feeds are passed over.

    Changes nothing. Raises FeedNotFound, and as :func:`open_address` does.
    """
    look = cast("Callable[[str, str | None, Any], Verdict]", _module_of(address).examine_store)
    return look(address.text, feed, progress)


def frames_of_address(address: StoreAddress, feed: str, first: int) -> Iterator[Frame]:
    """Yield the verified frames of ``feed`` with sequence ids from ``first`` on; raises as :func:`examine_address` does."""
    read = cast("Callable[[str, str, int], Iterator[Frame]]", _module_of(address).frames_of_store)
    return read(address.text, feed, first)


def damaged_rows_of_address(address: StoreAddress, *, remove: bool) -> list[RowDamage]:
    """Return the metadata rows that fail their checksum, and remove them if asked to; servers may be at work."""
    look = cast("Callable[..., list[RowDamage]]", _module_of(address).damaged_rows_of_store)
    return look(address.text, remove=remove)


def _module_of(address: StoreAddress) -> ModuleType:
    module, extra = STORES[address.text.partition("://")[0].lower()]
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headrace"):
            raise
        raise SetupMissing(
            f"{address} needs the package {error.name}, which is not installed",
            hint=f"pip install 'headrace[{extra}]'",
        ) from None
    return imported
