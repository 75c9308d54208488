"""Reads the transcripts of ``tests/scenarios/simple``: what an assembler is given (``>``) and what it must return (``<``).

::

    partitions N [rows N] [bytes N] [at COMMIT-TS]
    > PARTITION insert | update | delete TABLE[@VERSION] COMMIT-TS KEY…    one message a key, of 10 bytes each
    > PARTITION TYPE TABLE[@VERSION] COMMIT-TS                             a DDL; TYPE is create, alter, …
    > PARTITION watermark COMMIT-TS
    > PARTITION bootstrap TABLE[@VERSION]
    > supply TABLE[@VERSION]
    < need TABLE@VERSION
    < commit COMMIT-TS KIND TABLE KEY, …
    < execute TYPE TABLE@VERSION COMMIT-TS
    < progress COMMIT-TS from POSITION POSITION …
    < refuse CODE WORDS    some words of the error's text
    = rows N | dropped N | readable PARTITION … | missing TABLE@VERSION …

PARTITION may be ``*``: each in turn. Versions are 1 where none is given. Positions count from 1 in each partition, and a
message that is refused has none; ``> PARTITION back N`` puts the next one N places before. ``#`` is for people.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import HeadraceError
from headrace.simple.assembler import Assembler, Bounds
from headrace.simple.delivery import (
    Checkpoint,
    Delivery,
    Progress,
    SchemaNeeded,
    Statement,
    Transaction,
)
from headrace.simple.message import Bootstrap, Ddl, Message, MessageType, Watermark
from headrace.simple.schema import TableSchema
from tests.simple_tables import BUILD_TS, change, table

_SIZE = 10
_IDS = {name: number for number, name in enumerate("abcdefghijklmnopqrstuvwxyz", 1)}


def schema_of(text: str) -> TableSchema:
    name, _, version = text.partition("@")
    return table(f"shop.{name}", "id", version=int(version or 1), table_id=_IDS[name[0]], key=("id",))


def messages(words: list[str]) -> list[Message]:
    match words:
        case ["watermark", commit_ts]:
            return [Watermark(int(commit_ts), BUILD_TS)]
        case ["bootstrap", name]:
            return [Bootstrap(BUILD_TS, schema_of(name))]
        case [("insert" | "update" | "delete") as kind, name, commit_ts, *keys]:
            rows = [{"id": key} for key in keys]
            return [
                change(
                    kind.upper(),
                    schema_of(name),
                    int(commit_ts),
                    None if kind == "delete" else row,
                    None if kind == "insert" else row,
                )
                for row in rows
            ]
        case [kind, name, commit_ts]:
            sql = f"{kind} {name}"
            return [Ddl(MessageType(kind.upper()), sql, int(commit_ts), BUILD_TS, schema_of(name))]
    raise AssertionError(f"not a message: {words}")


def shown(delivery: Delivery) -> str:
    match delivery:
        case SchemaNeeded():
            return f"need {delivery.table}@{delivery.version}"
        case Transaction(commit_ts, rows):
            parts = [
                f"{row.message.type.lower()} {row.message.table} {(row.message.data or row.message.old or {})['id']!s}"
                for row in rows
            ]
            return f"commit {commit_ts} {', '.join(parts)}"
        case Statement(message):
            schema = message.table_schema
            assert schema is not None
            return f"execute {message.type.lower()} {schema.table}@{schema.version} {message.commit_ts}"
        case Progress(checkpoint, resume_at):
            return f"progress {checkpoint.commit_ts} from {' '.join(map(str, resume_at))}"


class Run:
    """One assembler, told what the lines say."""

    def __init__(self, setup: list[str]) -> None:
        given = dict(zip(setup[::2], setup[1::2], strict=False))
        self.partitions = int(given["partitions"])
        self.positions = [0] * self.partitions
        self.machine = Assembler(
            self.partitions,
            Checkpoint(int(given.get("at", 0))),
            bounds=Bounds(int(given.get("rows", 1000)), int(given.get("bytes", 1_000_000))),
        )

    def tell(self, words: list[str]) -> list[str]:
        if words[0] == "supply":
            return [shown(one) for one in self.machine.supply(schema_of(words[1]))]
        which = range(self.partitions) if words[0] == "*" else [int(words[0])]
        if words[1] == "back":
            for partition in which:
                self.positions[partition] -= int(words[2])
            return []
        out: list[str] = []
        for partition in which:
            for message in messages(words[1:]):
                out += self._take(partition, message)
        return out

    def _take(self, partition: int, message: Message) -> list[str]:
        position = self.positions[partition] + 1
        try:
            done = self.machine.take(partition, message, size=_SIZE, position=position)
        except HeadraceError as error:
            return [f"refuse {error.code} {error.detail}"]
        self.positions[partition] = position
        return [shown(one) for one in done]

    def state(self, words: list[str]) -> str:
        match words[0]:
            case "rows" | "dropped":
                return f"{words[0]} {getattr(self.machine, words[0])}"
            case "readable":
                return " ".join(["readable", *map(str, self.machine.readable)])
            case "missing":
                return " ".join(["missing", *(f"{key[1]}@{key[2]}" for key in self.machine.missing)])
        raise AssertionError(f"not a state: {words}")


def check(path: Path) -> None:
    """Run one transcript; AssertionError names the line at which the assembler does something else."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    run: Run | None = None
    waiting: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        place = f"{path.name}:{number}"
        if run is None:
            run = Run(line.split())
        elif line.startswith("<"):
            found = waiting.pop(0) if waiting else "nothing"
            expected = line[1:].strip()
            if expected.startswith("refuse "):
                _, code, detail = expected.split(" ", 2)
                assert found.startswith(f"refuse {code} "), f"{place}: {found}"
                assert detail in found, f"{place}: {found}"
            else:
                assert found == expected, f"{place}: {found}"
        else:
            assert not waiting, f"{place}: before it also {waiting}"
            words = line[1:].split()
            if line.startswith("="):
                assert run.state(words) == " ".join(words), f"{place}: {run.state(words)}"
            else:
                waiting = run.tell(words)
    assert not waiting, f"{path.name}: at the end also {waiting}"
