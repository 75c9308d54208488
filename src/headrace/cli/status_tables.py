"""How ``headrace status`` shows its look to a person: tables, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.cli.status_look import Look
from headrace.wire.documents import FeedView, TimeToLoss
from headrace.wire.report_documents import ReportView
from headrace.wire.retention_documents import ConsumerRetention, RetentionView

WIDTH_MIN = 100
"""Columns where nobody looks (a pipe): less would break names."""
BAD, GOOD = "bold red", "green"
"""Beside the words, which say the same without colours."""


def print_look(look: Look) -> None:
    """Print all of it on stdout."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(WIDTH_MIN, console.width))
    ready = f"[{GOOD}]ready[/]" if look.health.status == "ok" else f"[{BAD}]not ready[/]"
    console.print(f"{escape(look.server)}: {ready}, Headrace {look.health.version}")
    for reason in look.health.reasons:
        console.print(f"  {escape(reason)}", style=BAD)
    for alarm in look.alarms or ():
        of = " ".join(escape(name) for name in (alarm.change_feed_id, alarm.agent_id) if name)
        console.print(f"[{BAD}]alarm {alarm.code}[/] since {alarm.raised_at} {of}\n  {escape(alarm.detail)}")
        console.print(f"  what to do: headrace explain {alarm.code}")
    for table in _tables(look):
        console.print(table)
    if look.not_shown:
        console.print(f"not shown without an admin's token: {', '.join(look.not_shown)}")


def _tables(look: Look) -> Iterator[Table | str]:
    yield _feeds(look)
    if look.processes is not None:
        yield _processes(look.processes)
    yield _consumers(look.feeds)
    if look.retention is not None:
        yield _retention(look.retention)
        everywhere = [one for one in look.retention.consumers if not one.feed]
        if everywhere:
            yield _subscribers(everywhere)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in columns:
        number = name in {"head", "entries/s", "retained", "behind", "bytes", "waiting"}
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _feeds(look: Look) -> Table:
    table = _table("feeds", "feed", "head", "entries/s", "retained", "owner", "epoch", "state")
    for one in look.feeds:
        rate = look.rates.get(one.change_feed_id)
        retained = one.head_sequence_id - one.oldest_sequence_id + 1 if one.head_sequence_id else 0
        table.add_row(
            escape(one.change_feed_id),
            str(one.head_sequence_id),
            "" if rate is None else f"{rate:,.1f}",
            str(max(0, retained)),
            "(shared)" if one.shared else escape(one.owner),
            "" if one.shared else str(one.epoch),
            f"[{BAD}]quarantined[/]" if one.quarantined else "ok",
        )
    return table


def _processes(processes: Sequence[ReportView]) -> Table:
    table = _table("processes", "kind", "name", "state", "waiting", "host", "what it does")
    for one in processes:
        state = f"[{BAD}]{one.state}[/]" if one.state in {"stuck", "failed", "gone"} else one.state
        works = [
            f"{work.name}: {work.detail} ({work.code})" if work.code else work.name
            for work in one.report.works
            if work.state == "stuck" or work.detail
        ]
        where = f"{one.report.host} {one.report.pid}"
        if one.state == "gone":
            works = [f"last heard {one.reported_at}"]
        elif one.state == "failed":
            works = [f"it ended {one.reported_at}: {one.report.detail} ({one.report.code})"]
        waiting = sum(work.waiting for work in one.report.works)
        table.add_row(
            one.kind, escape(one.name), state, str(waiting), escape(where), escape("; ".join(works))
        )
    return table


def _consumers(feeds: Sequence[FeedView]) -> Table:
    table = _table(
        "listeners and subscribers", "feed", "name", "kind", "place", "behind", "seen", "time to loss"
    )
    for feed in feeds:
        for one in feed.listeners:
            place = "unknown" if one.sequence_id is None else str(one.sequence_id)
            behind = "" if one.lag_entries is None else str(one.lag_entries)
            kind = "listener, holds" if one.hold else "listener"
            row = (escape(feed.change_feed_id), escape(one.listener_id), kind, place, behind, one.seen_at)
            table.add_row(*row, _loss(one.time_to_loss))
        for other in feed.subscribers:
            row = (
                escape(feed.change_feed_id),
                escape(other.subscriber_id or "(unnamed)"),
                "subscriber",
                other.lsn,
                str(other.lag_entries),
                other.seen_at,
            )
            table.add_row(*row, _loss(other.time_to_loss))
    return table


def _retention(found: RetentionView) -> Table:
    table = _table("retention", "bytes", "cap", "keeps at least", "segments", "next pass drops")
    going = sum(one.goes for one in found.segments)
    table.add_row(
        f"{found.bytes:,}",
        f"{found.terms.bytes_max:,}",
        f"{found.terms.retention_seconds / 3600:g} h",
        str(len(found.segments)),
        f"{going} segments" if going else "nothing",
    )
    return table


def _subscribers(consumers: Sequence[ConsumerRetention]) -> Table:
    table = _table(
        "consumers of all feeds, backups among them", "name", "place", "bytes", "seen", "time to loss"
    )
    for one in consumers:
        table.add_row(
            escape(f"{one.kind} {one.name or '(unnamed)'}"),
            one.place,
            f"{one.bytes_held:,}",
            one.seen_at,
            _loss(one.time_to_loss),
        )
    return table


def _loss(found: TimeToLoss | None) -> str:
    if found is None:
        return ""
    return f"[{BAD}]{escape(found.text)}[/]" if found.state == "lost" else escape(found.text)
