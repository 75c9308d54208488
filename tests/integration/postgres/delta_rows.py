"""Keeps a feed's Delta tables, and prints every published row as JSON lines: run as a process, so that Spark ends with it.

First a line ``{"table": [...], "types": {column: Spark type}}``, then a list of values for each row, null or a text that
loses nothing: timestamps in microseconds and dates in days since 1970, floats and bytes in hex.
"""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow

from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.tables.job import read_tables, run_tables
from headrace.runtime.logs import configure_logs
from tests.scale import sized


class DeltaTable(NamedTuple):
    """One table as Spark shows it: the type of each column, and its rows."""

    types: dict[str, str]
    rows: list[dict[str, str | None]]


def keep_delta(folder: Path, feed: str, server: str) -> dict[str, DeltaTable]:
    """Have the job of ``headrace pipeline tables`` bring the tables in ``folder`` up to the feed's head.

    Returns them by their name in the source.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.postgres.delta_rows", str(folder), feed, server],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, DeltaTable] = {}
    types: dict[str, str] = {}
    rows: list[dict[str, str | None]] = []
    for line in done.stdout.splitlines():
        document = json.loads(line)
        if isinstance(document, dict):
            types, rows = document["types"], []
            found[document["table"][-1]] = DeltaTable(types, rows)
        else:
            rows.append(dict(zip(types, document, strict=True)))
    return found


def main(folder: str, feed: str, server: str) -> None:
    """Bring the tables of ``folder`` up to date, and print them."""
    configure_logs()
    settings = SessionSettings(
        log_file=Path(folder).parent / "delta_rows.log",
        name="delta rows",
        master="local[2]",
        checkpoint=folder,
        short_lived=sized(True, soak=False),
    )
    spark = open_session(settings)
    try:
        run_tables(spark, feed=feed, to=folder, server=server, once=True)
        for name, frame in read_tables(spark, folder).items():
            types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
            sys.stdout.write(json.dumps({"table": name, "types": types}) + "\n")
            columns = [_texts(column) for column in frame.toArrow().columns]
            for row in zip(*columns, strict=True):
                sys.stdout.write(json.dumps(row) + "\n")
    finally:
        spark.stop()


def _texts(column: Any) -> list[str | None]:
    """The column's values; those of moments and days as numbers, because Python has no such dates."""
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast("int64")
    elif pyarrow.types.is_date(column.type):
        column = column.cast("int32")
    return [_text(value) for value in column.to_pylist()]


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case float() | bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
    return str(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
