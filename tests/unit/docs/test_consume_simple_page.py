"""The page about consuming the Simple Protocol: its code runs as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from headrace.simple import checksum, json_codec
from headrace.simple.delivery import Checkpoint
from headrace.simple.dispatch import Dispatcher, DispatchRule
from headrace.simple.message import Checksum, Ddl, Dml, Message, MessageType, Watermark
from headrace.simple.values import RowTypes
from tests.simple_tables import change, insert, table

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "consume-simple.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
T = table("shop.orders", "id", "amount", key=("id",))


@dataclass
class State:
    """What the page's consumer keeps beside its tables."""

    checkpoint: Checkpoint = Checkpoint()  # noqa: RUF009  # it is frozen
    resume_at: tuple[int | None, ...] = ()
    executed: list[str] = field(default_factory=list)

    def execute(self, ddl: Ddl) -> None:
        self.executed.append(ddl.sql)

    def store(self, checkpoint: Checkpoint, resume_at: tuple[int | None, ...]) -> None:
        self.checkpoint, self.resume_at = checkpoint, resume_at


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(code, names)  # the page's own code
    return names


def test_the_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    messages: list[Message] = [
        insert(T, 3, id="1", amount="5"),
        Ddl(MessageType.CREATE, "CREATE TABLE orders", 2, 9, T),
        insert(T, 4, id="2", amount="6"),
        change("UPDATE", T, 5, {"id": "3", "amount": "7"}, {"id": "2", "amount": "6"}),
        change("DELETE", T, 6, None, {"id": "1", "amount": "5"}),
        Watermark(6, 9),
    ]
    given = [(0, position, json_codec.encode(message)) for position, message in enumerate(messages)]
    tables: dict[tuple[str, str], dict[tuple[int], dict[str, int]]] = {}
    state = State()
    run(CODE[0])["consume"](given, 1, tables, state)
    assert tables == {("shop", "orders"): {(3,): {"id": 3, "amount": 7}}}
    assert state.executed == ["CREATE TABLE orders"]
    assert (state.checkpoint.commit_ts, state.resume_at) == (6, (6,))
    assert capsys.readouterr().out == "rows of shop.orders wait for version 1\n"
    before = str(tables)
    run(CODE[0])["consume"](given, 1, tables, state)
    assert str(tables) == before, "after a restart the same messages change nothing"
    assert state.executed == ["CREATE TABLE orders"]


def test_the_checksums() -> None:
    wrong = msgspec.structs.replace(insert(T, 3, id="1", amount="5"), checksum=Checksum(0, False, 1, 0))
    expected = crc32((1).to_bytes(8, "little") + (5).to_bytes(8, "little"))
    with pytest.raises(SystemExit, match=f"1 expected, {expected} computed"):
        run(CODE[2], message=wrong, types=RowTypes(T), checksum=checksum)


def test_the_dispatcher() -> None:
    row: Dml = insert(T, 3, id="1", amount="5")
    names = run(CODE[3], Dispatcher=Dispatcher, DispatchRule=DispatchRule, schema=T, message=row)
    assert names["route"].topic == "shop_orders"
