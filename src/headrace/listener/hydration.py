"""The part of the state machine that gets a listener a snapshot of its publisher's state. Pure.

::

    Lease -> Leased -> Fetch -> Found -> Lease (naming the snapshot) -> Leased -> Apply -> Applied
                         ^ |
                 BeingMade v Pause           cut: Wait, then the same snapshot from where it was cut
                                             gone, broken or too old: Wait, then another one

Until the snapshot is named, the lease holds retention from the oldest retained entry on; so a snapshot that stands for
the entry before that one, or a later one, joins what the feed holds. An older one is refused.
"""

from __future__ import annotations

from headrace import errors
from headrace.listener.events import Action, Apply, BeingMade, Fetch, Found, Lease, Leased, Pause


class Hydration:
    """One listener's way to one snapshot. ``floor``: the snapshot must stand for this sequence id at least."""

    def __init__(self, floor: int, cause: errors.HeadraceError | None) -> None:
        self.cause = cause
        """Why a snapshot is needed; None if it was chosen."""
        self.found: Found | None = None
        """The snapshot that is being fetched."""
        self._at_least = floor
        self._incarnation = ""
        self._leased = False
        self._named = False
        self._open = False

    def begin(self) -> Action:
        """Return the first action, also after a failure: the lease is taken again, naming the snapshot if there is one."""
        self._leased = self._open = False
        if self.found is not None:
            return Lease(self.found.snapshot_id, self.found.sequence_id)
        return Lease()

    def go_on(self) -> Action:
        """Return what to do after a pause or a wait."""
        return self._fetch() if self._leased else self.begin()

    def take_lease(self, event: Leased) -> Action:
        """The lease stands: fetch, or apply what is open."""
        self._leased = True
        self._incarnation = event.incarnation
        self._at_least = max(self._at_least, event.oldest - 1)
        if self.found is not None and self.found.sequence_id < self._at_least:
            self.found, self._open = None, False  # the lease had lapsed, and retention went on
        if self._open:
            self._open, self._named = False, True
            return Apply()
        return self._fetch()

    def take_pause(self, event: BeingMade) -> Action:
        """The publisher is still at it."""
        return Pause(event.seconds)

    def take_found(self, event: Found) -> Action | errors.SnapshotBroken:
        """A snapshot is there: name it to the lease first, or say why it does not fit."""
        known = self.found
        if known is None or known.snapshot_id != event.snapshot_id:
            self._named = False
        self.found = None
        if event.incarnation != self._incarnation:
            return errors.SnapshotBroken(
                f"the snapshot {event.snapshot_id} is of the incarnation {event.incarnation}, the feed of "
                f"{self._incarnation}"
            )
        if event.sequence_id < self._at_least:
            return errors.SnapshotBroken(
                f"the snapshot {event.snapshot_id} stands for {event.sequence_id}, below {self._at_least} that it was "
                "asked for: entries between would be lost"
            )
        self.found = event
        if self._named:
            return Apply()
        self._open = True
        return Lease(event.snapshot_id, event.sequence_id)

    def lapse(self) -> None:
        """Something failed: how the lease stands is no longer known."""
        self._leased = self._open = False

    def drop(self) -> None:
        """The snapshot is gone or of no use: the next fetch takes another one."""
        self.found, self._named, self._open = None, False, False

    def _fetch(self) -> Action:
        return Fetch(self._at_least, self.found.snapshot_id if self.found is not None else None)
