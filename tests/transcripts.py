"""Reads the transcripts of ``tests/scenarios/listener``: what a listener is told (``>``) and what it must do (``<``).

::

    start oldest | head | snapshot | N | TIME [drain] [failures N] [hydrates] [filtered] [buffer N]
    saved INCARNATION SEQUENCE LSN [SNAPSHOT]
    > registered INCARNATION OLDEST HEAD
    > located INCARNATION HEAD AFTER
    > received | polled INCARNATION OLDEST HEAD [ENTRY ENTRY …] [last ENTRY]
    > leased INCARNATION OLDEST HEAD | being-made SECONDS | found SNAPSHOT SEQUENCE INCARNATION | applied
    > failed CODE [progress] [lost-last N] [head N] | poll-failed CODE | waited
    < register | locate TIME | pin SEQUENCE | read FIRST | poll AFTER | wait FAILURES | pause SECONDS
    < deliver FIRST..LAST [to SEQUENCE] | pass SEQUENCE
    < lease [SNAPSHOT SEQUENCE] | fetch AT-LEAST [SNAPSHOT] | apply | end-lease | finish | stop CODE

Entry N has the LSN ``N.1.N`` unless it is written ``N@LSN``. ``last``: how far the server has looked. ``to``: where the
consumer stands then, if that is not the last entry. Lines that begin with ``#`` are for people.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import Raw

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import by_code
from headrace.listener import events
from headrace.listener.buffer import Buffer
from headrace.listener.machine import Machine
from headrace.wire.documents import EntryOut


def entry(text: str) -> EntryOut:
    number, _, lsn = text.partition("@")
    return EntryOut(
        sequence_id=int(number), lsn=lsn or f"{number}.1.{number}", committed_at="", changes=Raw(b"{}")
    )


def event(words: list[str]) -> events.Event:
    match words:
        case ["registered", incarnation, oldest, head]:
            return events.Registered(incarnation, int(oldest), int(head))
        case ["located", incarnation, head, after]:
            return events.Located(incarnation, int(head), int(after))
        case ["received", incarnation, oldest, head, *entries]:
            return events.Received(incarnation, int(oldest), int(head), *_looked(entries))
        case ["polled", incarnation, oldest, head, *entries]:
            return events.Polled(incarnation, int(oldest), int(head), *_looked(entries))
        case ["leased", incarnation, oldest, head]:
            return events.Leased(incarnation, int(oldest), int(head))
        case ["being-made", seconds]:
            return events.BeingMade(float(seconds))
        case ["found", snapshot_id, sequence_id, incarnation]:
            return events.Found(snapshot_id, int(sequence_id), incarnation)
        case ["applied"]:
            return events.Applied()
        case ["failed", code, *more]:
            error = by_code(code)("as the transcript says")
            named = [name for name in ("lost-last", "head") if name in more]
            error.members = {name: int(more[more.index(name) + 1]) for name in named}
            return events.Failed(error, progress="progress" in more)
        case ["poll-failed", code]:
            return events.PollFailed(by_code(code)("as the transcript says"))
        case ["waited"]:
            return events.Waited()
    raise AssertionError(f"not an event: {words}")


def _looked(words: list[str]) -> tuple[list[EntryOut], int | None, Lsn | None]:
    if "last" not in words:
        return [entry(text) for text in words], None, None
    *entries, _, end = words
    last = entry(end)
    return [entry(text) for text in entries], last.sequence_id, Lsn.parse(last.lsn)


def line(action: events.Action) -> str:
    match action:
        case events.Pin(bookmark):
            return f"pin {bookmark.sequence_id}"
        case events.Read(first, bookmark):
            assert bookmark.sequence_id == first - 1
            return f"read {first}"
        case events.Poll(after, bookmark):
            assert bookmark.sequence_id == after
            return f"poll {after}"
        case events.Locate(time):
            return f"locate {time.isoformat()}"
        case events.Deliver(_, entries, place):
            last = entries[-1].sequence_id
            beyond = f" to {place.sequence_id}" if place.sequence_id != last else ""
            return f"deliver {entries[0].sequence_id}..{last}{beyond}"
        case events.Pass(place):
            return f"pass {place.sequence_id}"
        case events.Wait(failures, _):
            return f"wait {failures}"
        case events.Pause(seconds):
            return f"pause {seconds:g}"
        case events.Lease(None):
            return "lease"
        case events.Lease(snapshot_id, sequence_id):
            return f"lease {snapshot_id} {sequence_id}"
        case events.Fetch(at_least, snapshot_id):
            return f"fetch {at_least} {snapshot_id or ''}".rstrip()
        case events.Stop(error):
            return f"stop {error.code}"
        case events.EndLease():
            return "end-lease"
        case events.Register() | events.Apply() | events.Finish():
            return type(action).__name__.lower()


def play(path: Path) -> tuple[list[str], list[str]]:
    """Return (what the machine did, what the transcript says), both as the transcript's lines."""
    start: events.Start = "oldest"
    saved: Bookmark | None = None
    options: dict[str, Any] = {}
    played: Machine | None = None
    did: list[str] = []
    told: list[str] = []
    for raw in path.read_text(encoding="utf-8").splitlines():
        words = raw.split("#")[0].split()
        match words:
            case []:
                continue
            case ["start", place, *more]:
                start = _start(place)
                options = _options(more)
                continue
            case ["saved", incarnation, number, lsn, *snapshot]:
                known = None if lsn == "-" else Lsn.parse(lsn)
                saved = Bookmark(incarnation, int(number), known, *snapshot)
                continue
        told.append(" ".join(words))
        if words[0] == ">":
            assert played is not None, "a transcript begins with what the machine does first"
            did.append(" ".join(words))
            did += [f"< {line(action)}" for action in played.take(event(words[1:]))]
        elif played is None:
            played = Machine(start, saved, **options)
            did += [f"< {line(action)}" for action in played.begin()]
    return did, told


def _start(place: str) -> events.Start:
    if place in {"oldest", "head", "snapshot"}:
        return cast("events.Start", place)
    return int(place) if place.isdigit() else datetime.fromisoformat(place)


def _options(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: True for name in ("drain", "hydrates", "filtered") if name in words}
    if "failures" in words:
        found["failures_max"] = int(words[words.index("failures") + 1])
    if "buffer" in words:
        found["buffer"] = Buffer(int(words[words.index("buffer") + 1]))
    return found
