"""The page of the Simple Protocol: its example is the golden row, its tables name every type, member and way."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.arrow import ArrowRows
from headrace.simple.message import MessageType
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.values import RowTypes
from tests.simple import BINARIES, GOLDEN, INTEGERS, TEXTS, binary, table, text

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "simple.md").read_text(encoding="utf-8")
VALUES = PAGE.partition("## Values")[2].partition("## An example")[0]
ROWS = {
    name: cells
    for line in VALUES.splitlines()
    if line.startswith("| `") and "`mysqlType`" not in line
    for cells in [line.strip("| ").split(" | ")]
    for name in re.findall(r"`(\w+)`", cells[0])
}


def test_the_example_is_the_golden_row() -> None:
    example = PAGE.partition("```json\n")[2].partition("\n```")[0]
    assert example.encode() == (GOLDEN / "types" / "insert.json").read_bytes()


def test_the_lines_of_python_do_what_they_say() -> None:
    types = GOLDEN / "types"
    scope: dict[str, object] = {name: (types / f"{file}.json").read_bytes() for name, file in FILES.items()}
    said = 0
    for line in PAGE.partition("```python\n")[2].partition("\n```")[0].splitlines():
        code, _, result = line.partition("  # ")
        if not result:
            exec(code, scope)
        elif result.startswith("a "):
            assert type(eval(code, scope)).__name__ == result.split()[1]
        else:
            assert repr(eval(code, scope)) == result
        said += bool(result)
    assert said == 3


FILES = {"first": "bootstrap", "second": "insert"}


def test_every_type_of_message_is_named() -> None:
    named = set(re.findall(r"`([A-Z]+)`", PAGE.partition("## JSON")[0]))
    assert named == set(MessageType)


def test_members_stand_in_the_order_in_which_they_are_written() -> None:
    members = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.partition("## JSON")[2].partition("## Table")[0], re.MULTILINE
    )
    listed = [name for cell in members for name in re.findall(r"\w+", cell)]
    written = (GOLDEN / "insert.json").read_text(encoding="utf-8")
    here = [name for name in listed if f'"{name}":' in written]
    assert here == sorted(here, key=lambda name: written.index(f'"{name}":'))
    assert {"version", "commitTs", "schemaVersion", "data"} <= set(here)


def test_every_mysql_type_has_a_row() -> None:
    shown = {"tinytext", "longtext", "tinyblob", "longblob"}  # "…" stands for those between
    kinds = [binary(name) for name in (*INTEGERS, *BINARIES)] + [text(name) for name in TEXTS]
    kinds += [
        binary(family) for family in Family if family not in {Family.INTEGER, Family.TEXT, Family.BINARY}
    ]
    for kind in kinds:
        assert family_of(kind) is not None
        between = kind.mysql_type.endswith(("text", "blob")) and kind.mysql_type not in shown
        assert between or kind.mysql_type in ROWS


@pytest.mark.parametrize(
    ("name", "arrow"),
    [(name, cells[4]) for name, cells in ROWS.items() if "…" not in cells[4] and "," not in cells[4]],
)
def test_the_arrow_types_are_those_of_the_page(name: str, arrow: str) -> None:
    kind = text(name) if name in TEXTS else binary(name, length=10)
    if name == "bigint":
        kind = binary(name, unsigned=True)
    found = ArrowRows(RowTypes(table(kind))).schema.field("c0").type
    assert re.sub(r"list<\w+: (\w+)>", r"list<\1>", str(found)).replace("[day]", "") == arrow.strip("`")
    assert isinstance(found, pa.DataType)


def test_the_errors_are_named() -> None:
    assert f"`{SimpleInvalid.code}`" in PAGE
    assert f"`{SimpleUnsupported.code}`" in PAGE
