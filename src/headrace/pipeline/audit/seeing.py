"""The source read at one moment that has a place in the feed, again if a statement or a copy of rows came meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from headrace.capture.settings import CaptureSettings
from headrace.errors import SourceNotAudited, SourceShifted
from headrace.pipeline.audit.places import COLUMNS, CaptureWatch, is_copied, place_of
from headrace.pipeline.audit.source import Shifted, SourceRead, read_source
from headrace.pipeline.source.feed import FORMAT

TRIES_MAX: Final = 3
"""So often the source is read, if statements change its tables, or rows are copied, meanwhile."""


class SourceAsked(NamedTuple):
    """The source: capture's settings, and the environment that holds what they leave out. ``wait_s``: for what is behind."""

    settings: CaptureSettings
    environment: Mapping[str, str] = os.environ
    wait_s: float = 60.0


class Seen(NamedTuple):
    """The source as it was read, and the entries that are that moment in the feed: between them are WATERMARKs alone."""

    read: SourceRead
    first: int
    last: int

    def place(self, published: int) -> int:
        """Return where the feed is to be folded to: the published entry itself, if it is of the same moment."""
        return published if self.first <= published <= self.last else self.last


class Seeing:
    """Reads the source of ``feed``. ``options``: of ``format("headrace")``, for that feed."""

    def __init__(
        self, spark: SparkSession, asked: SourceAsked, feed: str, options: Mapping[str, str]
    ) -> None:
        """SourceNotAudited if the settings are of another feed."""
        if asked.settings.feed != feed:
            raise SourceNotAudited(
                f"the tables are of the feed {feed}, and --source is of {asked.settings.feed}"
            )
        self._spark = spark
        self._asked = asked
        self._options = dict(options)

    def see(self, folder: Path) -> Seen:
        """Read the source into ``folder``, and find its place. Raises what :func:`run_audit` names for a source."""
        self._watch().check_source()
        why = ""
        for number in range(TRIES_MAX):
            self._watch().wait_copied()
            files = folder / f"source-{number}"
            files.mkdir()
            found = self._try(files)
            if isinstance(found, Seen):
                return found
            shutil.rmtree(files)
            why = found
        raise SourceShifted(f"tables were changed or copied while they were read, {TRIES_MAX} times: {why}")

    def _try(self, files: Path) -> Seen | str:
        """Read the source once; returns what came meanwhile, if something did."""
        settings, environment = self._asked.settings, self._asked.environment
        try:
            read = read_source(settings.find_dsn(environment), settings.find_selection(), files)
        except Shifted as shift:
            return str(shift)
        passed = self._watch().wait_passed(read.ended)
        if not is_copied(passed.position):
            return "rows are being copied into the feed"
        entries = (
            self._spark.read.format(FORMAT)
            .schema(COLUMNS)
            .options(**self._options, end=str(passed.head))
            .load()
        )
        found = place_of(entries, read.gtids, read.ended)
        if found.statement is not None:
            return f"the entry {found.statement} of {settings.feed} is a statement that came meanwhile"
        if found.copy is not None:
            return f"the entry {found.copy} of {settings.feed} is the end of a copy that was made meanwhile"
        return Seen(read, found.first, found.last)

    def _watch(self) -> CaptureWatch:
        return CaptureWatch(self._asked.settings, self._asked.environment, self._asked.wait_s)
