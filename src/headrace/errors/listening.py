"""What ends a listener on its consumer's side: its bookmarks, and entries that the consumer refuses."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class BookmarkMoved(Stopped):
    """Another listener has moved this bookmark meanwhile; what was to be written with it must not be committed."""

    code = "bookmark-moved"
    hint = "Two listeners run under one id. Stop one of them, or give it its own --listener-id."
    exit_code = 3


class BookmarkCorrupt(Stopped):
    """A stored bookmark does not match its checksum; nothing was touched."""

    code = "bookmark-corrupt"
    hint = "Put a copy back, or move it away: the listener then begins anew, where --from says."
    exit_code = 3


class FilterDiffers(Stopped):
    """The bookmark was made with another filter: entries that the old one took away would be missing without a word."""

    code = "filter-differs"
    hint = (
        "Ask for what was asked for before; or begin under another --listener-id; or go on from here with "
        "--change-filter: what the old filter took away before this place never comes."
    )
    exit_code = 3


class EntryRefused(Stopped):
    """The consumer refuses an entry."""

    code = "entry-refused"
    hint = (
        "Mend the consumer and start again: the bookmark stands before this entry. Or choose --on-error park."
    )


class CommandFailed(Stopped):
    """The command given with --exec failed on an entry."""

    code = "command-failed"
    hint = "Mend the command and start again: the bookmark stands before this entry."


class ParkedTooMany(Stopped):
    """No more entries can be parked."""

    code = "parked-too-many"
    hint = (
        "Mend the consumer, then `headrace listen parked replay`; or drop what is parked; or raise --parked-max, "
        "--parked-bytes-max."
    )
    exit_code = 3


class ParkedWaiting(Stopped):
    """Entries are parked, and the way that was chosen would hand later entries of their keys over before them."""

    code = "parked-waiting"
    hint = (
        "Mend the consumer, then `headrace listen parked replay`; or `headrace listen parked drop`. With --exec, or "
        "Listener.run in code, a listener goes on beside what is parked."
    )
    exit_code = 3


class ParkedNotFound(Stopped):
    """No such entry is parked."""

    code = "parked-not-found"
    hint = "`headrace listen parked list` shows what is parked."
    exit_code = 2
