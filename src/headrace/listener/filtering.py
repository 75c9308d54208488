"""A bookmark belongs to the filter that it was made with: what that took away is behind the bookmark, and never comes.

So a filter that takes in more would lose entries without a word, and one that takes in less leave a consumer with state that
nobody keeps up. A listener that asks for something else is refused, unless its user has said that this is meant.
"""

from __future__ import annotations

from headrace.entries.bookmark import Bookmark
from headrace.entries.feed import check_agent_id
from headrace.errors import FilterDiffers
from headrace.listener.bookmarks import BookmarkStore
from headrace.wire.filters import EntryFilter, Shard


def shard_id(listener_id: str, shard: Shard | None) -> str:
    """Return the id under which the second of eight parts of ``tcns`` is known, here and at the server: ``tcns.2-of-8``.

    So each part has a bookmark, parked entries and a position of its own. InvalidRequest if that is no name.
    """
    if shard is None:
        return listener_id
    return check_agent_id(f"{listener_id}.{shard.number}-of-{shard.parts}", "listener-id")


def check_filter(store: BookmarkStore, listener_id: str, feed: str, wanted: EntryFilter) -> None:
    """FilterDiffers if there is a bookmark, and it was made with another filter than ``wanted``."""
    known, stored = store.filter_of(listener_id, feed), wanted.stored()
    if known == stored:
        return
    saved = store.load(listener_id, feed)
    if saved is not None:
        raise FilterDiffers(
            f"the bookmark {saved.sequence_id} of {listener_id} was made with {known or 'no filter'}; asked for is "
            f"{stored or 'no filter'}"
        )


def claim(
    store: BookmarkStore, listener_id: str, feed: str, wanted: EntryFilter, *, change: bool
) -> Bookmark | None:
    """Claim the bookmark for ``wanted``, which is kept before anything moves. FilterDiffers, unless ``change``.

    Checked before the claim too: who is refused must not fence the listener that has the bookmark now.
    """
    if not change:
        check_filter(store, listener_id, feed, wanted)
    saved = store.claim(listener_id, feed)
    if not change:
        check_filter(store, listener_id, feed, wanted)
    if store.filter_of(listener_id, feed) != wanted.stored():
        store.set_filter(listener_id, feed, wanted.stored())
    return saved
