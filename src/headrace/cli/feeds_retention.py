"""``headrace feeds retention explain``: what the journal's retention would drop, when and why, and who holds what."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter
from msgspec import to_builtins

from headrace.client.credential import read_token
from headrace.client.http import FeedClient
from headrace.wire.documents import ms_of_rfc3339
from headrace.wire.retention_documents import ConsumerRetention, RetentionView, SegmentRetention

app = App(name="retention", help="The journal's retention: one for all feeds of a server.")

Flag = Annotated[bool, Parameter(negative=())]

SHOWN_MAX: Final = 20
"""Segments printed at each end of the list; --json prints all."""

NAMED_MAX: Final = 3
"""Holders named beside a segment; each has a line of its own below."""


@app.command(name="explain")
async def explain_command(
    *,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Show what retention would drop now, when the rest goes, why, and who holds it back. It changes nothing.

    Parameters
    ----------
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document: that of GET /retention.
    """
    async with FeedClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        found = await client.retention()
    print(dump_json(to_builtins(found)) if json else "\n".join(_lines(found)), flush=True)


def _lines(found: RetentionView) -> Iterator[str]:
    terms = found.terms
    share = 100 * found.bytes / terms.bytes_max if terms.bytes_max else 100.0
    yield (
        f"retention {_span(terms.retention_seconds)}, byte cap {_size(terms.bytes_max)} "
        f"({_size(found.bytes)} taken, {share:.1f} %), consumers expire after "
        f"{_span(terms.subscriber_expiry_seconds)}, a pass every {_span(terms.every_seconds)}"
    )
    going = [one for one in found.segments if one.goes]
    if going:
        size = sum(one.bytes for one in going)
        yield f"the next pass drops {len(going)} of {len(found.segments)} segments, {_size(size)}:"
        for feed in found.feeds:
            if feed.oldest_afterwards > feed.oldest_sequence_id:
                yield f"  {feed.change_feed_id}: entries {feed.oldest_sequence_id} to {feed.oldest_afterwards - 1}"
    else:
        yield "the next pass drops nothing"
    losing = [one for one in found.consumers if one.loses_now]
    for one in losing:
        yield f"  {one.kind} {one.name} at {one.place} loses its place"
    yield ""
    yield "segments, oldest first:"
    yield from _segments(found)
    yield ""
    yield "consumers:" if found.consumers else "consumers: none"
    for one in found.consumers:
        yield f"  {_consumer(one)}"


def _segments(found: RetentionView) -> Iterator[str]:
    now_ms = ms_of_rfc3339(found.now)
    left_out = len(found.segments) - 2 * SHOWN_MAX
    for index, one in enumerate(found.segments):
        if left_out <= 0 or index < SHOWN_MAX or index >= SHOWN_MAX + left_out:
            yield f"  {one.first_position:#018x}  {_size(one.bytes):>10}  newest {one.newest_at}  {_why(one, now_ms)}"
        elif index == SHOWN_MAX:
            yield f"  … {left_out} more; --json prints all"


def _why(one: SegmentRetention, now_ms: int) -> str:
    more = len(one.held_by) - NAMED_MAX
    holders = ", ".join(one.held_by[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    if one.fate == "older-than-retention":
        return "goes: older than the retention, and below everyone who holds"
    if one.fate == "byte-cap":
        return "goes: the byte cap is reached" + (f", over {holders}" if holders else "")
    if one.fate == "open" or one.goes_at is None:
        return "stays: open" + (f", held by {holders}" if holders else "")
    left = _span(max(0, ms_of_rfc3339(one.goes_at) - now_ms) / 1000)
    if one.fate == "held":
        return f"stays: held by {holders}; goes in {left} if they are not seen again"
    held = f"; also held by {holders}" if holders else ""
    return f"stays: younger than the retention; goes in {left}{held}"


def _consumer(one: ConsumerRetention) -> str:
    of_feed = f" of {one.feed}" if one.feed else ""
    holds = (
        f"holds {_size(one.bytes_held)} until {one.holds_until} or longer"
        if one.holds_until
        else "does not hold"
    )
    if one.forgotten_at and not one.holds_until:
        holds += f", forgotten {one.forgotten_at}"
    return (
        f"{one.kind} {one.name or '(unnamed)'}{of_feed} at {one.place}, last seen {one.seen_at}: "
        f"{holds}; {one.time_to_loss.text}"
    )


def _size(size: int) -> str:
    """Powers of 1,024, as the options of ``headrace serve`` take them."""
    number, units = float(size), iter(("kB", "MB", "GB", "TB"))
    unit = "bytes"
    while number >= 1024 and (larger := next(units, "")):
        number, unit = number / 1024, larger
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"


def _span(seconds: float) -> str:
    from headrace.log.retention.loss import duration

    return duration(seconds) if seconds >= 1 else f"{seconds:g} s"
