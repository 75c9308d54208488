"""The options of ``format("headrace.wal")``, checked. ``docs/howto/read-segments.md`` says what each is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.archive.files.segments import TASK_BYTES, Range
from headrace.entries.feed import check_feed_id
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.pipeline.addresses import absolute_folder, identity_file
from headrace.pipeline.wal import FORMAT

OPTIONS: Final = ("path", "from-lsn", "to-lsn", "feeds", "gaps", "pushdown", "task-bytes", "identity")


class Options:
    """The options of one read: InvalidRequest names the one that is wrong. Its values can be pickled.

    Made on the driver: a relative path is one of the folder that it runs in.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in sorted(self._given):
            if name not in OPTIONS:
                raise InvalidRequest(
                    f"{FORMAT} has no option {name!r}; its options are {', '.join(OPTIONS)}", member=name
                )
        self.path = absolute_folder(self._given.get("path", ""))
        if not self.path:
            raise InvalidRequest(f"{FORMAT} needs a folder: .load(PATH)", member="path")
        self.range = Range(self._lsn("from-lsn"), self._lsn("to-lsn"))
        if None not in self.range and self.range[0] > self.range[1]:  # type: ignore[operator]  # neither is None
            raise InvalidRequest("option from-lsn is above to-lsn", member="from-lsn")
        self.feeds = self._feeds()
        self.accepts_gaps = self._choice("gaps", "refuse", "accept")
        self.pushdown = self._choice("pushdown", "off", "once")
        self.identity = identity_file(self._given.get("identity", ""))
        self.task_bytes = self._bytes("task-bytes", TASK_BYTES)

    def _lsn(self, name: str) -> Lsn | None:
        text = self._given.get(name)
        return None if text is None else Lsn.parse(text)

    def _feeds(self) -> frozenset[str] | None:
        text = self._given.get("feeds")
        return None if text is None else frozenset(check_feed_id(name.strip()) for name in text.split(","))

    def _choice(self, name: str, default: str, other: str) -> bool:
        """Tell whether it is the other one."""
        text = self._given.get(name, default)
        if text not in {default, other}:
            raise InvalidRequest(f"option {name}: {default} or {other}, not {text[:80]!r}", member=name)
        return text == other

    def _bytes(self, name: str, default: int) -> int:
        text = self._given.get(name, str(default))
        if not (text.isascii() and text.isdigit() and int(text)):
            raise InvalidRequest(f"option {name}: a number of bytes, not {text[:80]!r}", member=name)
        return int(text)
