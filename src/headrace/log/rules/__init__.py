"""The append rules, pure: waiting requests + the tails of their feeds -> frames to write, and an outcome for each.

``judging`` takes a group of requests and plans its frames, ``admission`` says who may do what with a feed, ``places``
judges the places that an append names and recognises repeats. All stores have their requests judged here and nowhere
else, so the order of checks is the same in each: incarnation, if given -> fenced? -> quarantined? -> already appended? ->
expected place. A refusal is an outcome like any other: it is answered only once the group that it was judged in is durable,
because it may rest on a frame of that very group.
"""

from headrace.log.rules.judging import GROUP_BYTES_MAX, Terms, Verdict, judge, not_put
from headrace.log.rules.places import History, StoredEntry

__all__ = ["GROUP_BYTES_MAX", "History", "StoredEntry", "Terms", "Verdict", "judge", "not_put"]
