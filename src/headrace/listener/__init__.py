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
from headrace.listener.filtering import shard_id
from headrace.listener.fold import Fold
from headrace.listener.handover import Handover, OnError, Refusals, Refused
from headrace.listener.listener import Listener
from headrace.listener.parking import ParkedEntry
from headrace.listener.parts import Batch, HydrationProgress, SnapshotBegin, SnapshotEnd, SnapshotRows
from headrace.listener.seen import Seen
from headrace.listener.settings import ListenerSettings
from headrace.listener.sqlite import SqliteBookmarks
from headrace.wire.filters import EntryFilter, Shard
from headrace.wire.merge_patch import apply_patch

__all__ = [
    "Batch",
    "BookmarkStore",
    "Change",
    "EntryFilter",
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
    "Shard",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotRows",
    "SqliteBookmarks",
    "apply_patch",
    "open_bookmarks",
    "shard_id",
]
