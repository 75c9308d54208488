"""The source's options, checked. ``docs/reference/spark-source.md`` says what each is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.pipeline.addresses import absolute_file, absolute_folder, identity_file
from headrace.pipeline.connection import RETRY_S, Endpoint, connection
from headrace.pipeline.source.archive import Archive
from headrace.pipeline.source.ends import Limits
from headrace.pipeline.source.names import DEFAULT_SERVER, FORMAT
from headrace.pipeline.source.planner import (
    BYTES_MAX,
    ENTRIES_MAX,
    PARTITION_ENTRIES,
    FeedPlanner,
    Known,
    Planner,
)
from headrace.pipeline.source.starts import Moment, read_moment

FEEDS_MAX: Final = 50
"""Feeds of one query: each has a connection of its own while new entries are waited for."""

_BOTH: Final = {
    "endpoint", "feeds", "token-file", "ca-file", "start", "incarnation", "lsn", "archive", "identity",
    "partition-entries", "retry-seconds",
}  # fmt: skip
_BATCH: Final = {"end", "pushdown"}
_STREAM: Final = {"listener", "max-entries", "max-bytes"}


class Options:
    """The options of one read: InvalidRequest names the one that is wrong. Its values can be pickled.

    Made on the driver: relative paths are those of the folder that it runs in.
    """

    def __init__(self, given: Mapping[str, str], *, streaming: bool) -> None:
        """Check what is given, for a stream or for a batch read."""
        self._given = {name.lower(): value for name, value in given.items()}
        self._check_names(streaming=streaming)
        self.feeds = self._feeds()
        retry_s = float(self._number("retry-seconds", int(RETRY_S)))
        token_file, ca_file = (absolute_file(self._given.get(name, "")) for name in ("token-file", "ca-file"))
        server = self._given.get("endpoint") or os.environ.get("HEADRACE_SERVER") or DEFAULT_SERVER
        self.endpoint = Endpoint(server, token_file, ca_file, retry_s)
        self.start = self._given.get("start", "oldest")
        self.known = self._known()
        self.listener = self._given.get("listener", "")
        if self.listener:
            check_agent_id(self.listener, "listener")
        self.archive_url = absolute_folder(self._given.get("archive", ""))
        self._identity = identity_file(self._given.get("identity", ""))
        self.entries_max = self._number("max-entries", ENTRIES_MAX)
        self.limits = Limits(self.entries_max, self._number("max-bytes", BYTES_MAX))
        self.partition_entries = self._number("partition-entries", PARTITION_ENTRIES)
        self.pushdown = self._choice("pushdown", "off", "once")
        self.start_moment()
        self.end_moment()

    def start_moment(self) -> Moment:
        """Return where to begin."""
        return self._moment("start", self.start)

    def end_moment(self) -> Moment:
        """Return where a batch read ends."""
        moment = self._moment("end", self._given.get("end", "head"))
        if moment == "oldest":
            raise InvalidRequest("option end: nothing ends at the oldest entry", member="end")
        return moment

    def archive(self, *, keep: bool = False) -> Archive | None:
        """Return the archive, if one is named; ``keep`` as there."""
        return Archive(self.archive_url, keep=keep, identity=self._identity) if self.archive_url else None

    def planner(self) -> Planner:
        """Return a planner on a connection of this thread."""
        feeds = connection(self.endpoint)
        archive = self.archive(keep=True)
        return Planner(
            {name: FeedPlanner(feeds, name, known=self.known, archive=archive) for name in self.feeds}
        )

    def _check_names(self, *, streaming: bool) -> None:
        allowed = _BOTH | (_STREAM if streaming else _BATCH)
        unknown = sorted(name for name in self._given if name not in allowed)
        if not unknown:
            return
        other = {True: "batch reads", False: "streams"}[streaming]
        known = unknown[0] in _BOTH | _STREAM | _BATCH
        raise InvalidRequest(
            f"{FORMAT}: the option {unknown[0]!r} is for {other} only"
            if known
            else f"{FORMAT} has no option {unknown[0]!r}; its options are {', '.join(sorted(allowed))}",
            member=unknown[0],
        )

    def _feeds(self) -> tuple[str, ...]:
        names = [name.strip() for name in self._given.get("feeds", "").split(",")]
        if names == [""]:
            raise InvalidRequest(
                f"{FORMAT} needs the option feeds: add .option('feeds', NAME)", member="feeds"
            )
        for name in names:
            check_feed_id(name)
        if len(set(names)) < len(names) or len(names) > FEEDS_MAX:
            raise InvalidRequest(
                f"option feeds: {len(names)} names; take 1 to {FEEDS_MAX} different ones", member="feeds"
            )
        return tuple(sorted(names))

    def _known(self) -> Known:
        incarnation, lsn = self._given.get("incarnation", ""), self._given.get("lsn", "")
        if (incarnation or lsn) and len(self.feeds) > 1:
            raise InvalidRequest("options incarnation and lsn are those of one feed", member="incarnation")
        return Known(incarnation, str(Lsn.parse(lsn)) if lsn else "")

    def _moment(self, option: str, text: str) -> Moment:
        moment = read_moment(text, option)
        if type(moment) is int and len(self.feeds) > 1:
            raise InvalidRequest(
                f"option {option}: each feed counts its own sequence ids; name an LSN or a time for several feeds",
                member=option,
            )
        return moment

    def _choice(self, name: str, no: str, yes: str) -> bool:
        text = self._given.get(name, no)
        if text not in {no, yes}:
            raise InvalidRequest(f"{FORMAT}: {name} must be {no} or {yes}, not {text[:80]!r}", member=name)
        return text == yes

    def _number(self, name: str, default: int) -> int:
        text = self._given.get(name, str(default))
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise InvalidRequest(
                f"{FORMAT}: {name} must be a number from 1 up, not {text[:80]!r}", member=name
            )
        return int(text)
