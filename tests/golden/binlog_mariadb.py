"""A binlog as MariaDB writes it, for tests without a server: ``python -m tests.golden.binlog_mariadb FOLDER`` makes it anew.

``mariadb.bin`` is a file of the server's, ``mariadb.txt`` what the decoder makes of it, a line for each event or row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import Event, RowsChanged, TableMap, TableMapped
from headrace.capture.binlog.rows import RowDecoder
from tests.binlog import charsets_of, split_events
from tests.mariadb import CAPTURE_OPTIONS, Server

FOLDER: Final = Path(__file__).parent / "binlog"
CHARSETS: Final = {8: "latin1", 33: "utf8mb3", 45: "utf8mb4", 46: "utf8mb4", 63: "binary"}
"""The character sets of the collations in it."""

_TYPES: Final = {
    "tiny": "tinyint",
    "small": "smallint unsigned",
    "medium": "mediumint",
    "big": "bigint unsigned",
    "real_number": "float",
    "double_number": "double",
    "price": "decimal(12,4)",
    "born": "year",
    "mask": "bit(10)",
    "name": "varchar(100) character set utf8mb4",
    "code": "char(3) character set latin1",
    "story": "mediumtext character set utf8mb4",
    "bits": "binary(4)",
    "picture": "blob",
    "small_text": "text compressed character set utf8mb4",
    "kind": "enum('a','ü') character set latin1",
    "kinds": "set('x','y','z') character set utf8mb4",
    "day": "date",
    "moment": "datetime(3)",
    "stamp": "timestamp(6) null",
    "span": "time(1)",
    "id6": "inet6",
    "number": "uuid",
    "spot": "point",
    "twice": "int as (id * 2) virtual",
}
_STATEMENTS: Final = (
    "CREATE TABLE every (id int PRIMARY KEY, {})".format(
        ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    ),
    """INSERT INTO every (id, tiny, small, medium, big, real_number, double_number, price, born, mask, name, code, story,
    bits, picture, small_text, kind, kinds, day, moment, stamp, span, id6, number, spot) VALUES (1, -1, 65535, -8388608,
    18446744073709551615, 0.1, 1e-5, -12345678.9, 2026, 5, 'Zoë', 'aé', '…', 'ab', x'00ff', REPEAT('x', 200), 'ü',
    'x,z',
    '2020-00-10', '2020-02-20 02:20:20.125', '2020-02-20 02:20:20.000001', '-838:59:59', '::1',
    '12345678-9abc-1def-8123-456789abcdef', POINT(1, 2))""",
    "INSERT INTO every (id) VALUES (2), (3)",
    "UPDATE every SET name = 'new' WHERE id < 3",
    "CREATE TABLE two (a int NOT NULL, b varchar(20) NOT NULL, PRIMARY KEY (b(3), a)) CHARACTER SET utf8mb4",
    "SET log_bin_compress = ON",
    "INSERT INTO two VALUES (1, REPEAT('b', 20)), (2, REPEAT('b', 20)), (3, REPEAT('b', 20)), (4, REPEAT('b', 20))",
    "UPDATE two SET a = a + 10",
    "DELETE FROM two WHERE a < 13",
    "CREATE TABLE three (a int COMMENT '" + "c" * 200 + "')",
    "SET GLOBAL log_bin_compress = OFF",
    "XA START 'q'",
    "DELETE FROM every WHERE id = 3",
    "XA END 'q'",
    "XA PREPARE 'q'",
    "XA COMMIT 'q'",
    "SET binlog_alter_two_phase = ON",
    "ALTER TABLE two ADD c int",
    "BEGIN",
    "INSERT INTO two VALUES (5, 'c', NULL)",
    "SAVEPOINT s",
    "DELETE FROM two",
    "COMMIT",
)


def read_golden() -> list[bytes]:
    """The events, as bytes."""
    return list(split_events((FOLDER / "mariadb.bin").read_bytes()))


def told(raw_events: list[bytes]) -> Iterator[str]:
    """What the decoder makes of events, a line each."""
    decoder = Decoder(CHARSETS)
    shapes: dict[int, TableMap] = {}
    for raw in raw_events:
        event: Event = decoder.decode(raw)
        yield str(event)
        if isinstance(event, TableMapped):
            shapes[event.table.table_id] = event.table
        elif isinstance(event, RowsChanged):
            yield from (f"    {row}" for row in row_decoder(shapes[event.table_id]).rows(event))


def row_decoder(table: TableMap) -> RowDecoder:
    """A decoder of the rows of one of the tables."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    forms = {places[name]: form for name, form in (("id6", "inet6"), ("number", "uuid")) if name in places}
    return RowDecoder(table, forms, {places["spot"]} if "spot" in places else ())


def make(folder: Path) -> None:
    """Write both files."""
    with Server(*CAPTURE_OPTIONS, "--log-bin-compress-min-len=20") as server:
        database = server.create_database("shop")
        file = server.rotate()
        assert set(charsets_of(server).items()) >= set(CHARSETS.items())
        with server.connect_as_root() as root, root.cursor() as cursor:
            cursor.execute(f"USE {database.name}")
            cursor.execute("SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', timestamp = 1760000000")
            for statement in _STATEMENTS:
                cursor.execute(statement.replace("SET log_bin_compress", "SET GLOBAL log_bin_compress"))
        server.rotate()
        data = file.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mariadb.bin").write_bytes(data)
    (folder / "mariadb.txt").write_text(
        "".join(f"{line}\n" for line in told(list(split_events(data)))), encoding="utf-8"
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
