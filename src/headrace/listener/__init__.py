"""An HTTP consumer with a durable bookmark: state machine, agent, bookmark stores (RFD 5, "Listener agent").

In: a feed's entries over ranges and long polls, and the publisher's snapshot where they are no longer retained. Out: changes
to the consumer, in order, each at least once; exactly once where the bookmark commits with the consumer's own writes.

::

    from headrace.listener import Listener, SqliteBookmarks

    async with Listener("http://127.0.0.1:8470", "vmapi::vm", "tcns", SqliteBookmarks("tcns.db")) as listener:
        async for change in listener:
            apply(change.key, change.state())
"""

from headrace.listener.bookmarks import BookmarkStore, open_bookmarks
from headrace.listener.change import Change
from headrace.listener.file import FileBookmarks
from headrace.listener.fold import Fold, apply_patch
from headrace.listener.handover import Handover, OnError, Refusals, Refused
from headrace.listener.listener import Listener, ListenerSettings
from headrace.listener.parking import ParkedEntry
from headrace.listener.parts import Batch, HydrationProgress, SnapshotBegin, SnapshotEnd, SnapshotRows
from headrace.listener.seen import Seen
from headrace.listener.sqlite import SqliteBookmarks

__all__ = [
    "Batch",
    "BookmarkStore",
    "Change",
    "FileBookmarks",
    "Fold",
    "Handover",
    "HydrationProgress",
    "Listener",
    "ListenerSettings",
    "OnError",
    "ParkedEntry",
    "Refusals",
    "Refused",
    "Seen",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotRows",
    "SqliteBookmarks",
    "apply_patch",
    "open_bookmarks",
]
