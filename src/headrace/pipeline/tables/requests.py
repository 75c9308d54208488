"""What operators ask of the tables job: one file a table in ``_headrace/requests``, left by commands, served by the job."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from headrace.pipeline.tables.files import FOLDER
from headrace.pipeline.tables.states import Request
from headrace.runtime.disk import Disk
from headrace.runtime.logs import get_logger
from headrace.runtime.typed_json import decode_json

logger = get_logger("pipeline")

REQUESTS: Final = "requests"
UNREADABLE: Final = ".unreadable"
"""What is put behind the name of a request that nobody can read."""


def leave_request(to: Path, request: Request, *, disk: Disk | None = None) -> None:
    """Leave a request for the job that keeps the tables in ``to``: durably, and one for each table."""
    folder = to / FOLDER / REQUESTS
    disk = disk or Disk()
    disk.make_folder(folder)
    disk.write_whole(folder / _name_of(request.table), msgspec.json.encode(request))


def waiting_requests(to: Path, *, aside: bool = False) -> list[Request]:
    """Return what operators ask for. With ``aside`` a file that is no request is moved aside, and the log says so."""
    found = []
    for path in sorted((to / FOLDER / REQUESTS).glob("*.json")):
        try:
            found.append(decode_json(path.read_bytes(), Request))
        except FileNotFoundError:
            continue  # served meanwhile
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if aside:
                kept = path.with_name(path.name + UNREADABLE)
                path.replace(kept)
                logger.error("a request can't be read", file=str(kept), detail=str(error))
    return found


def forget_request(to: Path, request: Request) -> None:
    """Take a request away, unless another one took its place meanwhile."""
    path = to / FOLDER / REQUESTS / _name_of(request.table)
    if request in waiting_requests(to):
        path.unlink(missing_ok=True)


def _name_of(table: tuple[str, ...]) -> str:
    return f"{hashlib.sha256(msgspec.json.encode(table)).hexdigest()[:32]}.json"
