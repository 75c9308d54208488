"""The log of a Delta table, read and cleaned without Spark: which version is newest, what commits did, what nobody needs.

Called by the tables job on the driver. A commit is ``_delta_log/<version>.json``; a checkpoint holds all that the versions
up to its own come to. Commits have no gap: old ones go from below, and only below a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace.runtime.typed_json import decode_json

USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
"""Session setting whose text every Delta commit made under it carries: :attr:`Commit.mark`."""

_LAST_CHECKPOINT: Final = "_last_checkpoint"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_OF_A_VERSION: Final = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\..*)(?:\.crc)?")


class Commit(NamedTuple):
    """One commit: its version, Delta's name of what it did (``MERGE``, ``ADD COLUMNS``), the mark that it was made with."""

    version: int
    operation: str
    mark: str


class _Pointer(msgspec.Struct):
    version: int


class _Info(msgspec.Struct):
    operation: str = ""
    mark: str | None = msgspec.field(name="userMetadata", default=None)


class _Line(msgspec.Struct):
    info: _Info | None = msgspec.field(name="commitInfo", default=None)


_DECODE: Final = msgspec.json.Decoder(_Line).decode


def newest_version(table: Path) -> int | None:
    """Return the newest version of the Delta table in this folder; None if there is no table.

    From the last checkpoint that Delta points at it goes up commit by commit, so a long log is not listed.
    """
    log = table / "_delta_log"
    version = _pointed_at(log)
    if not _commit(log, version).exists():
        return max(_versions(log), default=None)
    while _commit(log, version + 1).exists():
        version += 1
    return version


def commits_after(table: Path, version: int) -> Iterator[Commit]:
    """Yield the commits above ``version``, in order."""
    log = table / "_delta_log"
    for number in range(version + 1, (newest_version(table) or 0) + 1):
        infos = [
            found.info
            for line in _commit(log, number).read_bytes().splitlines()
            if line and (found := _DECODE(line)).info is not None
        ]
        info = infos[0] if infos and infos[0] is not None else _Info()
        yield Commit(number, info.operation, info.mark or "")


def clean_log(table: Path, before: datetime, needed: int) -> int:
    """Remove what no version needs that was the newest at ``before`` or later; return how many files that were.

    The version ``needed`` and all above it stay too. A cut in the middle does no harm: every version that counts is told by
    a checkpoint that stays, and what follows it.
    """
    log = table / "_delta_log"
    if not log.is_dir():
        return 0
    shown = _shown_at(log, before)
    if shown is None:
        return 0
    kept = max((one for one in _whole_checkpoints(log) if one <= min(shown, needed)), default=0)
    old = sorted(
        (int(match[1]), path)
        for path in log.iterdir()
        if (match := _OF_A_VERSION.fullmatch(path.name)) and int(match[1]) < kept
    )
    for _, path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _shown_at(log: Path, moment: datetime) -> int | None:
    """Return the version that was the newest at a moment; None if the log begins after it."""
    shown = None
    for version in sorted(_versions(log)):
        # Of a version and the ones below it all are older: a clock that was set back must not make it too many.
        if datetime.fromtimestamp(_commit(log, version).stat().st_mtime, UTC) > moment:
            break
        shown = version
    return shown


def _whole_checkpoints(log: Path) -> list[int]:
    found: dict[tuple[int, int], int] = {}
    for path in log.iterdir():
        if match := _CHECKPOINT.fullmatch(path.name):
            key = int(match[1]), int(match[3] or 1)
            found[key] = found.get(key, 0) + 1
    return [version for (version, parts), count in found.items() if count == parts]


def _pointed_at(log: Path) -> int:
    try:
        return decode_json((log / _LAST_CHECKPOINT).read_bytes(), _Pointer).version
    except (OSError, msgspec.MsgspecError):
        return 0


def _versions(log: Path) -> list[int]:
    names = [_COMMIT.fullmatch(path.name) for path in log.iterdir()] if log.is_dir() else []
    return [int(match[1]) for match in names if match]


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"
