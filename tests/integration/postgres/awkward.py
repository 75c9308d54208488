"""A table of types and values that go wrong easily, and an application that changes it in every way that SQL has."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import Database

TABLE = "awkward"

# The application's sessions are set so that the text of almost every value differs from what a naive reader expects.
SESSION = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-10",
}

DDL = Path(__file__).with_suffix(".sql").read_bytes()
IDS = [-(1 << 63), -1, 0, 1, 2, 3, 1 << 53, (1 << 53) + 1, (1 << 63) - 1]
TAGS = ["", "a", "NULL", 'O\'Brien "q"', "😀\n\t\\", "x" * 300, " pad "]

# Without what tables refuse by name (docs/formats/tables.md): PostgreSQL's last thirty years, and NaN in a numeric(p, s).
# As text, in the form that PostgreSQL reads whatever the session's settings are.
EDGES: dict[str, list[str]] = {
    "digits": [
        "1234567890123456789012345678901234567890",
        "-0.0000000000000000000000000000000000000001",
        "NaN",
        "Infinity",
        "-Infinity",
        "1.500",
        "0",
        "1e30",
    ],
    "fixed": ["12345678901234567890.0123456789", "-0.0000000001", "0", "1"],
    "wide": ["1234567890123456789012345678901234567890.12345678901234567890", "-1e-20", "NaN"],
    "small": ["-32768", "32767", "0"],
    "Naïve näme's": ["-2147483648", "2147483647"],
    "share": ["99.99", "100", "-0.01"],
    "double": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "1e23"],
    "single": ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217"],
    "yes": ["true", "false"],
    "words": [
        "",
        "NULL",
        "null",
        "'quoted' \"twice\" \\ \u2028 \x01 \x7f",
        "👩\u200d👩\u200d👧 é e\u0301",
        "{}",
        "\n",
    ],
    "padded": ["", "ab", "ü"],
    "short": ["", "trailing  ", "€"],
    "raw": [r"\x", r"\x00", r"\x00ff5c27e282ac", r"\x" + "ab" * 5000],
    "moment": [
        "infinity",
        "-infinity",
        "4713-01-01 00:00:00+00 BC",
        "0001-12-31 23:59:59.999999+00 BC",
        "0001-01-01 00:00:00+00",
        "1883-11-18 12:03:58.000001-05",
        "1970-01-01 00:00:00+00",
        "2026-10-25 02:30:00.123456+02",
        "9999-12-31 23:59:59.999999+00",
        "294247-01-10 04:00:54.775806+00",
    ],
    "wall": [
        "infinity",
        "-infinity",
        "4713-01-01 00:00:00 BC",
        "2026-03-29 02:30:00",
        "294247-01-10 04:00:54.775806",
    ],
    "day": [
        "infinity",
        "-infinity",
        "4713-01-01 BC",
        "0001-01-01",
        "2024-02-29",
        "1582-10-10",
        "5874897-12-31",
    ],
    "clock": ["00:00:00", "24:00:00", "23:59:59.999999", "12:00:00.1"],
    "span": [
        "1 year 2 mons -3 days 04:05:06.789",
        "-178000000 years",
        "0",
        "-00:00:00.000001",
        "1 month -1 day",
    ],
    "token": ["00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "doc": [
        "null",
        "{}",
        '"text"',
        '{"n": 1234567890123456789012345678901234567890.10, "b": [null, true, "😀\\"\\\\\\n"], "": {"a": 1e400}}',
        "[]",
    ],
    "feeling": ["sad", "ok", 'it\'s "fine"', "😀"],
    "texts": ["{}", '{NULL,"NULL","",",{}\\"\\\\",😀}', "[0:1]={a,b}"],
    "grid": ["{}", "{{1,2},{3,NULL}}", "{{{-2147483648}}}"],
    "amounts": ["{1.50,NaN,NULL,1234567890123456789012345678901234567890}"],
    "feelings": ['{sad,"it\'s \\"fine\\"",NULL}'],
}
COLUMNS = list(EDGES)


def create(database: Database) -> None:
    """Make the table, and rows in it; and set what the application's sessions will have."""
    for name, value in SESSION.items():
        database.sql(f"ALTER DATABASE {database.name} SET {name} = '{value}'")
    with database.connect() as app:
        app.execute(DDL)
        rng = random.Random(0)
        for number in range(max(map(len, EDGES.values()))):  # every edge value is there from the start
            row: dict[str, str | None] = {
                name: values[number % len(values)] for name, values in EDGES.items()
            }
            _insert(app, 1000 + number, rng.choice(TAGS), row)
        _insert(app, 2000, "", dict.fromkeys(COLUMNS))


def _row(rng: random.Random) -> dict[str, str | None]:
    return {name: None if rng.random() < 0.15 else rng.choice(values) for name, values in EDGES.items()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _insert(
    app: psycopg.Connection[Any], number: int, tag: str, row: dict[str, str | None], *, upsert: bool = False
) -> None:
    names = ", ".join(map(_quoted, row))
    text = f"INSERT INTO awkward (id, tag, {names}) VALUES ({', '.join(['%s'] * (len(row) + 2))})"
    if upsert:
        changes = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in row)
        text += f" ON CONFLICT (id, tag) DO UPDATE SET {changes}"
    app.execute(text.encode(), [number, tag, *row.values()])


class Application(threading.Thread):
    """Changes the table, a transaction at a time, until it is told to end. What it raised is kept in ``error``."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(name="awkward application")
        self._database = database
        self._rng = random.Random(seed)
        self._ending = threading.Event()
        self.commits = 0
        self.truncated = 0
        self.error: Exception | None = None

    def end(self) -> None:
        """Let it finish its transaction, and wait for it."""
        self._ending.set()
        self.join(60)

    def run(self) -> None:
        try:
            with self._database.connect() as app:
                while not self._ending.wait(0.005):
                    self._transact(app)
        except psycopg.Error as error:
            self.error = error

    def _transact(self, app: psycopg.Connection[Any]) -> None:
        rng = self._rng
        app.execute("BEGIN")
        for _ in range(rng.randrange(1, 6)):
            app.execute("SAVEPOINT step")
            try:
                self._change(app)
            except (
                psycopg.errors.UniqueViolation
            ):  # a key that is taken: a part of the work that an application redoes
                app.execute("ROLLBACK TO step")
            if rng.random() < 0.1:
                app.execute("ROLLBACK TO step")
        undone = rng.random() < 0.1
        app.execute("ROLLBACK" if undone else "COMMIT")
        self.commits += not undone

    def _change(self, app: psycopg.Connection[Any]) -> None:
        rng = self._rng
        key = (rng.choice(IDS), rng.choice(TAGS))
        match rng.choices(
            ["put", "update", "touch", "rekey", "delete", "bulk", "truncate"], [40, 30, 5, 10, 15, 2, 0.3]
        )[0]:
            case "put":
                _insert(app, *key, _row(rng), upsert=rng.random() < 0.7)
            case "update":
                row = {name: value for name, value in _row(rng).items() if rng.random() < 0.2}
                assigned = "".join(f", {_quoted(name)} = %s" for name in row)
                words = f"UPDATE awkward SET small = 7{assigned} WHERE (id, tag) = (%s, %s)"
                if "small" not in row:
                    app.execute(words.encode(), [*row.values(), *key])
            case "touch":
                app.execute("UPDATE awkward SET words = words WHERE id = %s", key[:1])
            case "rekey":
                new = (rng.choice(IDS), rng.choice(TAGS))
                app.execute("UPDATE awkward SET id = %s, tag = %s WHERE (id, tag) = (%s, %s)", [*new, *key])
            case "delete":
                app.execute("DELETE FROM awkward WHERE (id, tag) = (%s, %s)", key)
            case "bulk":
                app.execute("UPDATE awkward SET wide = coalesce(wide, 0) + 1 WHERE id >= %s", key[:1])
            case "truncate":
                app.execute("TRUNCATE awkward")
                self.truncated += 1
