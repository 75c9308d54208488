"""A streaming query's checkpoint without Spark: what it holds, and its way to another place as one JSON document.

Called by ``headrace pipeline checkpoint``; formats: docs/formats/checkpoint.md. Spark keeps four things in the folder: the
query's id, where each batch ends (written before the batch is begun), which batches are done, and where a source began. A
batch that is planned and not done is repeated, with the same end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headrace.errors import CheckpointNotFound, CheckpointUnfit, InvalidRequest
from headrace.pipeline.checkpoint_folder import METADATA, Folder
from headrace.pipeline.source.offset import Offset, Place, read_offset
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import CHECKPOINT, check_readable

BATCHES_KEPT: Final = 2
"""Batches that a document holds: Spark reads the newest one and, for where it begins, the one before it."""

DOCUMENT_CHARS_MAX: Final = 4 << 20
"""A query over our sources has some kilobytes; the log of a file source may have no bound."""

UNFINISHED: Final = "an import into this checkpoint was cut off: delete the folder and import again\n"
"""Stands in ``metadata`` until all else is written."""

_EXPORT_AGAIN: Final = "Export it again: headrace pipeline checkpoint export FOLDER."
_NAME: Final = re.compile(r"metadata|(?:offsets|commits)/\d{1,18}|sources/\d{1,9}/\d{1,18}")
_VERSION: Final = "v1"


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One planned batch. ``ends``: where it ends, the offset's document of each source; None: that one has nothing new."""

    batch_id: int
    done: bool
    planned_at: str
    ends: list[Any]


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """An exported checkpoint. ``files``: Spark's own files by name; ``batches`` is what they say, for people."""

    written_as: int = CHECKPOINT.written_as
    readable_from: int = CHECKPOINT.readable_from
    query_id: str
    batches: list[Batch]
    files: dict[str, str]


def places_in(end: Any) -> dict[str, Place | str]:
    """Return what an offset's document says of each feed: its place there, or where it was asked to begin.

    Empty for the offset of another source. FormatTooNew if a newer version wrote it.
    """
    if not isinstance(end, dict):
        return {}
    try:
        offset = read_offset(end)
    except InvalidRequest:
        return {}
    return dict(offset.feeds) if isinstance(offset, Offset) else dict.fromkeys(offset.feeds, offset.start)


def read_checkpoint(location: str) -> Document:
    """Return what a checkpoint holds of its newest batches, as it stands: the job may be running meanwhile.

    Raises CheckpointNotFound, CheckpointUnfit, and ConfigInvalid for a URL of a kind that this machine can't read.
    """
    folder = Folder(location)
    names = folder.names()
    if METADATA not in names:
        raise CheckpointNotFound(f"{location} holds no checkpoint")
    if any(name.startswith("state/") for name in names):
        raise CheckpointUnfit(f"{location} is of a query with state, which no document can hold")
    # A batch is done after it is planned: read in this order, none is done that is not planned.
    commits = _numbered(names, "commits")
    offsets = _numbered(folder.names(), "offsets")[-BATCHES_KEPT:]
    wanted = [METADATA, *[name for name in names if name.startswith("sources/")]]
    wanted += [f"offsets/{number}" for number in offsets]
    wanted += [f"commits/{number}" for number in offsets if number in commits]
    files: dict[str, str] = {}
    for name in wanted:
        files[name] = folder.read(name)
        if sum(map(len, files.values())) > DOCUMENT_CHARS_MAX:
            raise CheckpointUnfit(f"{location} holds more than {DOCUMENT_CHARS_MAX} characters in {name}")
    return document_of(files, location)


def document_of(files: Mapping[str, str], where: str) -> Document:
    """Return the document of a checkpoint's files. CheckpointUnfit if they are not as this version knows them."""
    strange = [name for name in files if not _NAME.fullmatch(name)]
    if strange:
        raise CheckpointUnfit(f"{where} has a file {strange[0]!r}, which no checkpoint has")
    try:
        query_id = decode_json(files[METADATA], dict[str, str])["id"]
        numbers = _numbered(files, "offsets")
        batches = [_batch(number, files) for number in numbers]
    except (msgspec.MsgspecError, LookupError, ValueError, TypeError, OverflowError) as error:
        raise CheckpointUnfit(f"{where} is no checkpoint that this version can read: {error!r}") from None
    if numbers and numbers[-1] > 0 and numbers[-2:] != [numbers[-1] - 1, numbers[-1]]:
        raise CheckpointUnfit(f"{where} lacks the batch {numbers[-1] - 1}: Spark could not go on from it")
    return Document(query_id=query_id, batches=batches, files=dict(files))


def encode(document: Document) -> bytes:
    """Return the document as it is printed: JSON, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def decode(data: bytes, where: str) -> Document:
    """Return an exported document. Raises FormatTooNew, and CheckpointUnfit if it was changed or is none."""
    try:
        versions = decode_json(data, _Versions)
        check_readable(where, versions.readable_from, CHECKPOINT)
        document = decode_json(data, Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointUnfit(f"{where} is no exported checkpoint: {error}", hint=_EXPORT_AGAIN) from None
    said = document_of(document.files, where)
    if (said.query_id, said.batches) != (document.query_id, document.batches):
        raise CheckpointUnfit(f"{where}: its files say otherwise than its batches", hint=_EXPORT_AGAIN)
    return document


def write_checkpoint(document: Document, location: str) -> None:
    """Make the checkpoint at ``location``, which must be empty or not be there: a query started on it goes on exactly there.

    If it is cut off, Spark does not start on what is there. Raises CheckpointUnfit, with nothing written, if something is
    there already.
    """
    folder = Folder(location)
    if there := folder.all_names():
        raise CheckpointUnfit(
            f"{location} is not empty: it holds {there[0]}",
            # Spark would check a new file against the old one's checksum, which is a hidden file.
            hint="Import into an empty folder, or a new one; hidden files count too.",
        )
    # Spark reads this file first, and ends if it is not JSON; without one, it would begin anew.
    folder.write(METADATA, UNFINISHED)
    for name in sorted(set(document.files) - {METADATA}):
        folder.write(name, document.files[name])
    folder.write(METADATA, document.files[METADATA])


def _batch(number: int, files: Mapping[str, str]) -> Batch:
    lines = files[f"offsets/{number}"].split("\n")
    done = files.get(f"commits/{number}")
    for text in (lines[0], *([done.split("\n")[0]] if done is not None else [])):
        if text != _VERSION:
            raise ValueError(f"the version {text[:20]!r} of batch {number}")
    planned_ms = decode_json(lines[1], dict[str, Any])["batchTimestampMs"]
    ends = [None if line == "-" else msgspec.json.decode(line) for line in lines[2:] if line]
    planned_at = datetime.fromtimestamp(int(planned_ms) / 1000, UTC).isoformat(timespec="milliseconds")
    return Batch(
        batch_id=number, done=done is not None, planned_at=planned_at.replace("+00:00", "Z"), ends=ends
    )


def _numbered(names: Iterable[str], folder: str) -> list[int]:
    found = (re.fullmatch(rf"{folder}/(\d{{1,18}})", name) for name in names)
    return sorted(int(match[1]) for match in found if match)


class _Versions(msgspec.Struct, rename="kebab"):
    readable_from: int
