"""Reads the transcripts of ``tests/scenarios/listener``: what a listener is told (``>``) and what it must do (``<``).

::

    start oldest | head | N        [drain] [failures N]
    saved INCARNATION SEQUENCE LSN
    > registered INCARNATION OLDEST HEAD
    > received INCARNATION OLDEST HEAD [ENTRY ENTRY …]
    > failed CODE | waited
    < register | pin SEQUENCE | read FIRST | poll AFTER | deliver FIRST..LAST | wait FAILURES | finish | stop CODE

Entry N has the LSN ``N.1.N`` unless it is written ``N@LSN``. Lines that begin with ``#`` are for people.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Raw

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import by_code
from headrace.listener import machine
from headrace.listener.machine import Start
from headrace.wire.documents import EntryOut


def entry(text: str) -> EntryOut:
    number, _, lsn = text.partition("@")
    return EntryOut(
        sequence_id=int(number), lsn=lsn or f"{number}.1.{number}", committed_at="", changes=Raw(b"{}")
    )


def event(words: list[str]) -> machine.Event:
    match words:
        case ["registered", incarnation, oldest, head]:
            return machine.Registered(incarnation, int(oldest), int(head))
        case ["received", incarnation, oldest, head, *entries]:
            return machine.Received(incarnation, int(oldest), int(head), [entry(text) for text in entries])
        case ["failed", code]:
            return machine.Failed(by_code(code)("as the transcript says"))
        case ["waited"]:
            return machine.Waited()
    raise AssertionError(f"not an event: {words}")


def line(action: machine.Action) -> str:
    match action:
        case machine.Register():
            return "register"
        case machine.Pin(bookmark):
            return f"pin {bookmark.sequence_id}"
        case machine.Read(first, bookmark):
            assert bookmark.sequence_id == first - 1
            return f"read {first}"
        case machine.Poll(after, bookmark):
            assert bookmark.sequence_id == after
            return f"poll {after}"
        case machine.Deliver(_, entries):
            return f"deliver {entries[0].sequence_id}..{entries[-1].sequence_id}"
        case machine.Wait(failures, _):
            return f"wait {failures}"
        case machine.Finish():
            return "finish"
        case machine.Stop(error):
            return f"stop {error.code}"


def play(path: Path) -> tuple[list[str], list[str]]:
    """Return (what the machine did, what the transcript says), both as the transcript's lines."""
    start: Start = "oldest"
    saved: Bookmark | None = None
    drain, failures_max = False, None
    played: machine.Machine | None = None
    did: list[str] = []
    told: list[str] = []
    for raw in path.read_text(encoding="utf-8").splitlines():
        words = raw.split("#")[0].split()
        match words:
            case []:
                continue
            case ["start", place, *more]:
                start = "oldest" if place == "oldest" else "head" if place == "head" else int(place)
                drain = "drain" in more
                failures_max = int(more[more.index("failures") + 1]) if "failures" in more else None
                continue
            case ["saved", incarnation, number, lsn]:
                saved = Bookmark(incarnation, int(number), None if lsn == "-" else Lsn.parse(lsn))
                continue
        told.append(" ".join(words))
        if words[0] == ">":
            assert played is not None, "a transcript begins with what the machine does first"
            did.append(" ".join(words))
            did += [f"< {line(action)}" for action in played.take(event(words[1:]))]
        elif played is None:
            played = machine.Machine(start, saved, drain=drain, failures_max=failures_max)
            did += [f"< {line(action)}" for action in played.begin()]
    return did, told
