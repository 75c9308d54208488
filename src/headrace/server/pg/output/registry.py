"""Which output plugins there are. One more is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.server.pg.output.contract import OutputFactory
from headrace.server.pg.output.entry_lines import EntryLines
from headrace.server.pg.output.wal2json import Wal2Json

OUTPUTS: Final[Mapping[str, OutputFactory]] = {
    "headrace": EntryLines,
    "wal2json": Wal2Json,
}
"""Plugins by the name that ``CREATE_REPLICATION_SLOT … LOGICAL name`` takes."""
