"""A psycopg2 consumer as a process of its own: ``DSN SLOT FILE``. A line is durable before it is confirmed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras


def main() -> None:
    """Follow the slot until the process is killed."""
    dsn, slot, path = sys.argv[1:]
    connection = psycopg2.connect(dsn, connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = connection.cursor()
    cursor.start_replication(slot_name=slot, decode=True)
    with Path(path).open("ab", buffering=0) as file:

        def consume(message: Any) -> None:
            file.write(message.payload.encode() + b"\n")
            os.fsync(file.fileno())
            message.cursor.send_feedback(flush_lsn=message.data_start, force=True)

        cursor.consume_stream(consume)


if __name__ == "__main__":
    main()
