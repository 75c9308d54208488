"""``headrace trace``: one entry's life, from the source's commit to the archive."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps as dump_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from msgspec import to_builtins

from headrace.client.credential import read_token
from headrace.client.tracing import TraceClient
from headrace.errors import Usage
from headrace.wire.documents import ms_of_rfc3339
from headrace.wire.trace_documents import Trace, TraceConsumer, TraceSource, TraceSpan

if TYPE_CHECKING:
    from headrace.archive.moments.catalogue import Archive

Flag = Annotated[bool, Parameter(negative=())]

app = App(name="trace", help="Show what became of one entry: when, where, and who has it.")


@app.default
async def trace_command(  # one parameter an option
    feed: str,
    sequence: int | None = None,
    /,
    *,
    key: str | None = None,
    pitr_dir: str | None = None,
    identity: Path | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Flag = False,
) -> int:
    """Show one entry's life: committed, marked, posted, appended, durable, delivered, acknowledged, archived.

    It works after the fact, from what was written down. Exit code 1 if there is no such entry.

    Parameters
    ----------
    feed
        The change-feed-id.
    sequence
        The entry's sequence id.
    key
        The newest entry with this key instead; the others with it are named.
    pitr_dir
        A backup's folder, in which the entry is looked for too: a path, or an address such as s3://bucket/path.
    identity
        File of the age identities that open its segments, if they are encrypted.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    if (sequence is None) == (key is None):
        raise Usage("name the entry: its sequence id, or --key")
    async with TraceClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        if sequence is not None:
            found = await client.trace(feed, sequence)
        else:
            found = await client.trace_key(feed, key or "")
    archived = _archived(found, pitr_dir, identity) if pitr_dir is not None else None
    if json:
        document = to_builtins(found)
        if archived is not None:
            document["archived"] = archived
        print(dump_json(document), flush=True)
    else:
        print("\n".join(_lines(found, archived)), flush=True)
    return 0 if found.state == "retained" or (archived and archived["state"] == "archived") else 1


def _archived(found: Trace, pitr_dir: str, identity: Path | None) -> dict[str, Any]:
    """In which segment of the archive the entry stands, by the manifests alone."""
    from headrace.archive.moments.catalogue import Archive
    from headrace.cli.wal_options import identity_of

    archive = Archive.read(pitr_dir, identity_of(identity))
    if found.sequence_id is None:
        return {"state": "unknown", "archive": archive.folder.shown}
    return {"archive": archive.folder.shown, **_in_archive(archive, found, found.sequence_id)}


def _in_archive(archive: Archive, found: Trace, sequence_id: int) -> dict[str, Any]:
    for one in archive.segments:
        manifest = archive.manifests.get(one.file)
        for part in manifest.feeds if manifest is not None else ():
            if (part.feed, part.incarnation) != (found.change_feed_id, found.incarnation):
                continue
            if part.first_sequence_id <= sequence_id <= part.last_sequence_id:
                return {"state": "archived", "file": one.file, "last-lsn": str(one.name.last)}
    last = str(archive.segments[-1].name.last) if archive.segments else None
    return {"state": "not-archived", "reaches": last}


def _lines(found: Trace, archived: dict[str, Any] | None) -> Iterator[str]:
    name = found.sequence_id if found.sequence_id is not None else "no entry"
    yield f"{found.change_feed_id} {name}  {found.state}" + (f": {found.detail}" if found.detail else "")
    yield (
        f"  feed         entries {found.oldest_sequence_id} to {found.head_sequence_id}, "
        f"incarnation {found.incarnation}"
    )
    if found.lsn is not None:
        yield f"  lsn          {found.lsn}"
    if found.op is not None:
        parts = [found.op, f"key {found.key}" if found.key is not None else "", found.control or ""]
        yield f"  entry        {', '.join(part for part in parts if part)}"
    if found.tx is not None:
        yield f"  transaction  {found.tx}"
    if found.producer is not None:
        one = found.producer
        parent = f", traceparent {one.traceparent}" if one.traceparent else ""
        owner = f"owner now {one.owner_now or 'nobody'}, {one.epoch_now}"
        yield f"  producer     {one.producer}, epoch {one.epoch} ({owner}){parent}"
    if found.place is not None:
        at = found.place
        yield (
            f"  stands in    {at.segment}, position {at.entry_position:#x} ({at.entry_bytes} bytes), "
            f"entry {at.index_in_append + 1} of {at.entries_in_append} in its append at {at.frame_position:#x}"
        )
    if found.same_key:
        yield f"  same key     {', '.join(map(str, found.same_key))}"
    if found.scanned_from is not None:
        yield f"  looked at    {found.scanned_from} to {found.head_sequence_id}, for the key"
    origin = next((step.by for step in found.steps if step.step == "appended"), None)
    for step in found.steps:
        yield f"  {step.step:<12} {_when(step.after, step.by, origin)}" + (
            f"  ({step.detail})" if step.detail else ""
        )
    for consumer in found.consumers:
        yield from _consumer(consumer, origin)
    if archived is not None:
        yield _archive_line(archived)
    if found.source is not None:
        yield from _source(found.source, label="not yet here" if found.state == "retained" else "source")


def _source(source: TraceSource, *, label: str) -> Iterator[str]:
    """What keeps entries from being appended; ``label`` stands before it."""
    owner = "shared" if source.shared else f"owner {source.owner or 'nobody'}, epoch {source.epoch}"
    yield f"  publisher    {owner}"
    for sentence in source.words:
        yield f"  {label:<12} {sentence}"
    for alarm in source.alarms or ():
        yield f"  alarm        {alarm.code}, since {alarm.raised_at}: {alarm.detail}"


def _consumer(one: TraceConsumer, origin: str | None) -> Iterator[str]:
    who = f"{one.kind} {'/'.join(part for part in (one.subject, one.name) if part)}"
    place = f"; its place is {one.place}" if one.place else ""
    yield f"  {one.state:<12} {who}: {one.detail or 'it has the entry'}{place}"
    for name, span in (("delivered", one.delivered), ("acked", one.acked)):
        if span is not None:
            yield f"    {name:<10} {_span(span, origin)}"


def _span(span: TraceSpan, origin: str | None) -> str:
    return _when(span.after, span.by, origin)


def _when(after: str | None, by: str | None, origin: str | None) -> str:
    """A time, or its bounds, and how long after the append that was."""
    if by is None:
        return "not known"
    told = by if after == by else f"between {after} and {by}" if after is not None else f"by {by}"
    if origin is None or by == origin:
        return told
    try:
        passed = ms_of_rfc3339(by) - ms_of_rfc3339(origin)
    except ValueError:  # a time that a foreign producer gave, and no calendar has
        return told
    return f"{told}, {passed / 1000:+.3f} s"


def _archive_line(archived: dict[str, Any]) -> str:
    if archived["state"] == "archived":
        return f"  archived     in {archived['file']} of {archived['archive']}"
    if archived["state"] == "unknown":
        return f"  archived     not known: {archived['archive']} is searched by sequence id"
    return f"  archived     not in {archived['archive']}, which reaches {archived['reaches'] or 'nothing'}"
