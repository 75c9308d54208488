"""``headrace pipeline checkpoint``: what a streaming query's checkpoint holds, and its way to another place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from headrace.cli.spark_jobs import check_installed
from headrace.errors import ConfigInvalid

if TYPE_CHECKING:
    from headrace.pipeline.checkpoint import Batch, Document

app = App(name="checkpoint", help="What a streaming query's checkpoint holds; move it elsewhere.")


@app.command(name="show")
def show_command(folder: str, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show where a query is: its newest batches, and the place in each feed that they end at.

    Parameters
    ----------
    folder
        The checkpoint's folder, or a URL that fsspec has a driver for.
    json
        Print one JSON document instead of lines.
    """
    document = _read(folder)
    if json:
        shown = {"query-id": document.query_id, "batches": document.batches}
        print(msgspec.json.encode(shown).decode())
        return
    for line in report(document):
        print(line)


@app.command(name="export")
def export_command(folder: str, /) -> None:
    """Print a query's checkpoint as one JSON document, from which `import` makes it again.

    Stop the job first: a job that runs on after its export has done batches that the imported one does again. The tables
    of `pipeline tables` are not in it: copy their whole folder, which holds the checkpoint as well.

    Parameters
    ----------
    folder
        The checkpoint's folder, or a URL that fsspec has a driver for.
    """
    document = _read(folder)
    from headrace.pipeline.checkpoint import encode

    sys.stdout.write(encode(document).decode())


@app.command(name="import")
def import_command(
    document: Path, folder: str, /, *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Make a checkpoint of an exported document. A query that is started with it goes on exactly where the other was.

    Parameters
    ----------
    document
        File with what `export` printed.
    folder
        Where the checkpoint shall be: an empty folder or a new one, or a URL that fsspec has a driver for.
    json
        Print one JSON document instead of lines.
    """
    check_installed()
    from headrace.pipeline.checkpoint import decode, write_checkpoint

    try:
        data = document.read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"{document} can't be read: {error.strerror}") from None
    found = decode(data, str(document))
    write_checkpoint(found, folder)
    if json:
        print(msgspec.json.encode({"query-id": found.query_id, "folder": folder}).decode())
        return
    print(f"{folder} holds the query {found.query_id}; start its job with --checkpoint {folder}")


def report(document: Document) -> list[str]:
    """Return what a checkpoint holds, in lines for a person; the newest batch first."""
    lines = [f"query {document.query_id}"]
    if not document.batches:
        return [*lines, "no batch is planned yet"]
    for batch in reversed(document.batches):
        state = "done" if batch.done else "not done: it is repeated with the same end"
        lines.append(f"batch {batch.batch_id}, planned at {batch.planned_at}, {state}")
        lines += [f"  {line}" for line in _ends(batch)]
    return lines


def _ends(batch: Batch) -> list[str]:
    from headrace.pipeline.checkpoint import places_in

    lines = []
    for end in batch.ends:
        places = places_in(end)
        for feed, place in places.items():
            if isinstance(place, str):
                lines.append(f"{feed}: begins at {place}")
                continue
            lsn = f", LSN {place.lsn}" if place.lsn else ""
            lines.append(
                f"{feed}: up to sequence id {place.sequence_id}{lsn}, incarnation {place.incarnation}"
            )
        if not places:
            other = "nothing new" if end is None else msgspec.json.encode(end).decode()
            lines.append(f"another source: {other}")
    return lines


def _read(folder: str) -> Document:
    check_installed()
    from headrace.pipeline.checkpoint import read_checkpoint

    return read_checkpoint(folder)
