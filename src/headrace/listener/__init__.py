"""An HTTP consumer with a durable bookmark: state machine, agent, bookmark stores (RFD 5, "Listener agent").

In: a feed's entries over ranges and long polls. Out: changes to the consumer, in order, each at least once.

::

    from headrace.listener import Listener, SqliteBookmarks

    async with Listener("http://127.0.0.1:8470", "vmapi::vm", "tcns", SqliteBookmarks("tcns.db")) as listener:
        async for change in listener:
            apply(change.key, change.state())
"""

from headrace.listener.bookmarks import BookmarkStore
from headrace.listener.change import Change
from headrace.listener.listener import Batch, Listener, ListenerSettings
from headrace.listener.sqlite import SqliteBookmarks

__all__ = ["Batch", "BookmarkStore", "Change", "Listener", "ListenerSettings", "SqliteBookmarks"]
