"""What a listener does next, as a pure state machine: events in, actions out. No I/O, no clock, no randomness.

::

    REGISTERING --registered--> CATCHING_UP --at the head--> POLLING
         ^                       |  |   ^                      |
         |                       |  |   +--- behind, or a gap--+
         +---- not-registered ---+--|--------------------------+
                                    +-- not retained --> HYDRATING --applied--> CATCHING_UP
    any of them: an error that may pass -> Wait, then what it was at; any other error -> Stop (ENDED)

While a range or a snapshot is fetched, a long poll at the head runs beside it, and what it brings goes into a small
:class:`~headrace.listener.buffer.Buffer`. Full, it is dropped; the feed has it all.

:mod:`headrace.listener.listener` is the caller. Its duties: (1) carry out the actions of one answer in their order, and
hand over what :class:`Deliver` holds before anything later is delivered; (2) hand back exactly one event for each call that
asks for one, in any order, whenever it comes; (3) store what :class:`Pin` names before going on; (4) draw the length of a
:class:`Wait` from its number of failures; (5) renew the lease in time, from :class:`Lease` to :class:`EndLease`; (6) store
what :class:`Pass` names in time, but never before the consumer has done with what was delivered before it.

The machine promises: sequence ids are delivered in order, each once, without a gap (RFD 5, "Listener agent"); after a
snapshot they go on behind the one that it stands for. What came twice is dropped. A gap in what the server sends is read
again and never delivered. A filtered machine delivers the sequence ids that were asked for; its place moves to where the
server has looked, past those that were not.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from headrace import errors
from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import Recovery
from headrace.listener.buffer import Buffer
from headrace.listener.events import (
    Action,
    Applied,
    BeingMade,
    Deliver,
    EndLease,
    Event,
    Failed,
    Finish,
    Found,
    Lease,
    Leased,
    Locate,
    Located,
    Pass,
    Pin,
    Poll,
    Polled,
    PollFailed,
    Read,
    Received,
    Register,
    Registered,
    Start,
    State,
    Stop,
    Wait,
    Waited,
)
from headrace.listener.hydration import Hydration
from headrace.listener.judging import outside, recreated, unfit
from headrace.listener.stretch import Stretch, dense_stretch, filtered_stretch

PATIENCE: Final = 5
"""How often refusals that may pass are waited out, other failures aside: a ticket of an earlier key, a lapsed lease."""


class Machine:
    """One listener of one feed. Feed it events; never share it.

    ``saved`` is the stored bookmark and wins over ``start``. ``drain``: finish at the head that the registration named.
    ``failures_max``: stop with the error after so many failures without progress; None never gives up. ``hydrates``: the
    consumer takes snapshots; else what is no longer retained stops the listener. ``filtered``: entries may be left out.
    """

    def __init__(
        self,
        start: Start,
        saved: Bookmark | None,
        *,
        drain: bool = False,
        failures_max: int | None = None,
        hydrates: bool = False,
        filtered: bool = False,
        buffer: Buffer | None = None,
    ) -> None:
        self.state = State.REGISTERING
        self._start = start
        self._place = saved
        self._drain = drain
        self._target: int | None = None
        self._failures = self._refusals = 0
        self._failures_max = failures_max
        self._hydrates = hydrates
        self._filtered = filtered
        self._hydration: Hydration | None = None
        self._lease: Literal["none", "held", "refused"] = "none"
        self._buffer = buffer if buffer is not None else Buffer()
        self._polls_after: int | None = None  # what the open poll names; None: no poll is open
        self._overflowed = False

    @property
    def ended(self) -> bool:
        """True after Finish or Stop: no event is taken any more."""
        return self.state is State.ENDED

    def begin(self) -> list[Action]:
        """Return the first actions."""
        return [Register()]

    def take(self, event: Event) -> list[Action]:
        """Return what to do after ``event``. RuntimeError for an event that was not asked for."""
        match event, self.state:
            case ((Polled() | PollFailed()), _) if (
                self.state is not State.ENDED and self._polls_after is not None
            ):
                return self._poll_ended(event, self._polls_after)
            case Registered(), State.REGISTERING:
                return self._registered(event)
            case Located(), State.REGISTERING:
                return self._begin_at(Bookmark(event.incarnation, event.after), event.head)
            case Received(), State.CATCHING_UP:
                return self._received(event)
            case Leased(), State.CATCHING_UP:
                self._lease = "held"
                return [self._catch_up()]
            case ((Leased() | BeingMade() | Found() | Applied()), State.HYDRATING):
                return self._hydrated(event)
            case Failed(error, progress), State.REGISTERING | State.CATCHING_UP | State.HYDRATING:
                self._failures, self._refusals = (0, 0) if progress else (self._failures, self._refusals)
                return self._failed(error)
            case Waited(), State.REGISTERING:
                return [Register()]
            case Waited(), State.CATCHING_UP:
                return [self._catch_up()]
            case Waited(), State.HYDRATING:
                return [self._hydrating().go_on()]
        raise RuntimeError(f"{type(event).__name__} does not fit the state {self.state}")

    # -- ranges and polls ---------------------------------------------------------------------------------------------

    def _registered(self, event: Registered) -> list[Action]:
        if self._target is None:
            self._target = event.head
        if self._hydration is not None:
            self.state = State.HYDRATING
            return [self._hydration.begin()]
        if self._place is not None:
            if refusal := recreated(event.incarnation, self._place):
                return self._stop(refusal)
            return self._go_on(event.head)
        match self._start:
            case "snapshot":
                return self._hydrate(None, 0, event.head)
            case datetime() as time:
                return [Locate(time)]
            case "oldest":
                before = event.oldest - 1
            case "head":
                before = event.head
            case number:
                before = number - 1
                if refusal := outside(number, event):
                    return self._stop(refusal)
        return self._begin_at(Bookmark(event.incarnation, before), event.head)

    def _begin_at(self, place: Bookmark, head: int) -> list[Action]:
        """Decide on a place for good: whatever is chosen later, it wins."""
        self._place = place
        return [Pin(place), *self._go_on(head)]

    def _go_on(self, head: int) -> list[Action]:
        self.state = State.CATCHING_UP
        return [*self._watch(head), self._catch_up()]

    def _received(self, event: Received) -> list[Action]:
        place = self._placed()
        if refusal := unfit(event, place, place.sequence_id):
            return self._stop(refusal)
        actions = self._deliver(self._stretch(event, place.sequence_id))
        if not self.ended:
            actions += self._deliver(self._buffer.take_behind(self._placed().sequence_id))
        return actions if self.ended else actions + self._after(event, progress=bool(actions))

    def _poll_ended(self, event: Polled | PollFailed, asked: int) -> list[Action]:
        """Take the answer of the poll that named ``asked``: to be delivered if nothing is missing before it."""
        self._polls_after = None
        if self.state is not State.POLLING:
            return self._beside(event, asked)
        if isinstance(event, PollFailed):
            return self._failed(event.error)
        place = self._placed()
        if refusal := unfit(event, place, asked):
            return self._stop(refusal)
        actions = self._deliver(self._stretch(event, asked if self._filtered else place.sequence_id))
        if self.ended:
            return actions
        if event.head <= self._placed().sequence_id:
            self._failures = 0  # a poll held to its time-out is a healthy server with nothing new
        return actions + self._after(event, progress=bool(actions))

    def _beside(self, event: Polled | PollFailed, asked: int) -> list[Action]:
        """A poll ended while something else is fetched. Whatever is wrong with it, the other call will meet it too."""
        if isinstance(event, PollFailed) or (self._place and unfit(event, self._place, asked)):
            self._overflowed = True
            self._buffer.drop()
            return []
        stretch = self._stretch(event, asked)
        if stretch is None or not self._buffer.put(stretch):
            self._overflowed = True
            self._buffer.drop()
            return []
        last = self._buffer.last
        return [self._poll(Bookmark(event.incarnation, last if last is not None else asked))]

    def _stretch(self, event: Received | Polled, after: int) -> Stretch | None:
        return filtered_stretch(event, after) if self._filtered else dense_stretch(event, after)

    def _deliver(self, stretch: Stretch | None) -> list[Action]:
        """Move on to the end of ``stretch`` if nothing is missing before it; stops at an LSN that does not follow."""
        place = self._placed()
        stretch = stretch.behind(place.sequence_id) if stretch is not None else None
        if stretch is None or stretch.lsn is None:
            return []
        entries = stretch.entries
        number, lsn = stretch.last, stretch.lsn
        if entries:
            number, lsn = entries[0].sequence_id, Lsn.parse(entries[0].lsn)
        if place.lsn is not None and lsn <= place.lsn:
            return self._stop(
                errors.FeedRecreated(
                    f"entry {number} has the LSN {lsn}, not above {place.lsn} of this listener's bookmark "
                    f"{place.sequence_id}"
                )
            )
        self._place = Bookmark(place.incarnation, stretch.last, stretch.lsn)
        self._failures = self._refusals = 0
        return [Deliver(place.incarnation, entries, self._place) if entries else Pass(self._place)]

    def _after(self, event: Received | Polled, *, progress: bool) -> list[Action]:
        """Choose the next call after an answer was taken."""
        place = self._placed()
        head = max(event.head, self._polls_after or 0)
        missing = head > place.sequence_id
        skipped = bool(event.entries) and event.entries[-1].sequence_id > place.sequence_id
        if self._drain and self._target is not None and place.sequence_id >= self._target:
            self.state = State.ENDED
            return [*self._end_lease(), Finish()]
        if self.state is State.CATCHING_UP and missing and (skipped or not progress):
            # A range that lacks entries the feed has: asking again at once would hammer a server that is wrong.
            return self._failed(
                errors.Unavailable(
                    f"the server left out entry {place.sequence_id + 1}, though the feed ends at {head}",
                    hint="The entry is asked for again; if this goes on, look at the server's log.",
                )
            )
        if missing:
            self.state = State.CATCHING_UP
            return [*self._watch(head), self._catch_up()]
        self.state = State.POLLING
        self._overflowed = False
        # A snapshot may stand for entries that the feed has not got yet: the lease is what lets a poll wait for them.
        ended = self._end_lease() if event.head >= place.sequence_id else []
        return ended + ([self._poll(place)] if self._polls_after is None else [])

    def _watch(self, head: int) -> list[Action]:
        """Open the poll beside, unless one is open, nothing lies between, or the buffer would only overflow again."""
        place = self._place
        if place is None or self._drain or self._polls_after is not None or head <= place.sequence_id:
            return []
        if self._overflowed and head - place.sequence_id > self._buffer.entries_max:
            return []
        last = self._buffer.last
        return [self._poll(Bookmark(place.incarnation, last if last is not None else head))]

    def _poll(self, bookmark: Bookmark) -> Poll:
        self._polls_after = bookmark.sequence_id
        return Poll(bookmark.sequence_id, bookmark)

    def _catch_up(self) -> Action:
        """Read what follows the place; behind a snapshot's place only under its lease, which may be of an earlier life."""
        place = self._placed()
        if place.snapshot_id is not None and self._lease == "none":
            return Lease(place.snapshot_id, place.sequence_id)
        return Read(place.sequence_id + 1, place)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _hydrate(self, cause: errors.HeadraceError | None, floor: int, head: int) -> list[Action]:
        self.state = State.HYDRATING
        self._hydration = Hydration(floor, cause)
        return [*self._watch(head), self._hydration.begin()]

    def _hydrated(self, event: Leased | BeingMade | Found | Applied) -> list[Action]:
        hydration = self._hydrating()
        match event:
            case Leased():
                self._lease = "held"
                if self._place is not None and (refusal := recreated(event.incarnation, self._place)):
                    return self._stop(refusal)
                return [hydration.take_lease(event)]
            case BeingMade():
                self._refusals = 0
                return [hydration.take_pause(event)]
            case Found():
                next_or_error = hydration.take_found(event)
                if isinstance(next_or_error, errors.SnapshotBroken):
                    return self._failed(next_or_error)
                return [next_or_error]
            case Applied():
                found = hydration.found
                if found is None:
                    raise RuntimeError("no snapshot was found that could be applied")
                self._place = Bookmark(found.incarnation, found.sequence_id, None, found.snapshot_id)
                self._hydration = None
                self._failures = self._refusals = 0
                self.state = State.CATCHING_UP
                return [Pin(self._place), self._catch_up()]

    # -- failures -----------------------------------------------------------------------------------------------------

    def _failed(self, error: errors.HeadraceError) -> list[Action]:
        unregistered = error.recovery is Recovery.REGISTER and self.state is not State.REGISTERING
        if isinstance(error, _NOT_RETAINED) and self._hydrates and self._hydration is None:
            read = self._place.sequence_id if self._place is not None else 0
            floor = max(read, int(error.members.get("lost-last", 0)))
            return self._hydrate(error, floor, int(error.members.get("head", 0)))
        if not (error.may_pass or unregistered or self._passes_here(error)):
            return self._stop(self._final(error))
        self._failures += 1
        if self._failures_max is not None and self._failures > self._failures_max:
            return self._stop(self._final(error))
        if unregistered:
            self.state = State.REGISTERING
            if self._failures == 1:
                return [Register()]
        elif self.state is State.POLLING:
            self.state = State.CATCHING_UP
        if self._hydration is not None:
            if isinstance(error, errors.SnapshotGone | errors.SnapshotBroken):
                self._hydration.drop()
            self._hydration.lapse()
        return [Wait(self._failures, error)]

    def _passes_here(self, error: errors.HeadraceError) -> bool:
        """Tell whether a refusal that ends a listener elsewhere (``recovery``) is worth another try within a snapshot."""
        place = self._place
        if isinstance(error, errors.SnapshotGone):
            return self._hydration is not None
        if isinstance(error, errors.TicketRefused):
            self._refusals += 1
            return self._hydration is not None and self._refusals <= PATIENCE
        if self._hydration is None and place is not None and place.snapshot_id is not None:
            if isinstance(error, errors.BeyondHead):
                self._lease = "none"
                self._refusals += 1
                return self._refusals <= PATIENCE
            if self._lease == "none":  # no lease to be had: the entries may be there without one
                self._lease = "refused"
                return True
        return False

    def _final(self, error: errors.HeadraceError) -> errors.HeadraceError:
        """Return what ends the listener: where no snapshot is to be had, what made it look for one."""
        cause = self._hydration.cause if self._hydration is not None else None
        if cause is None or not isinstance(error, _NO_HELP):
            return error
        final = type(cause)(f"{cause.detail}; and no snapshot helps: {error.detail}", hint=error.advice)
        final.members = cause.members
        return final

    def _stop(self, error: errors.HeadraceError) -> list[Action]:
        self.state = State.ENDED
        return [*self._end_lease(), Stop(error)]

    def _end_lease(self) -> list[Action]:
        if self._lease != "held":
            return []
        self._lease = "none"
        return [EndLease()]

    def _placed(self) -> Bookmark:
        if self._place is None:
            raise RuntimeError("no place before the registration is answered")
        return self._place

    def _hydrating(self) -> Hydration:
        if self._hydration is None:
            raise RuntimeError("no snapshot is wanted")
        return self._hydration


_NOT_RETAINED: Final = (errors.SequenceNotAvailable, errors.SequenceLost)
_NO_HELP: Final = (errors.NoSnapshot, errors.SnapshotForbidden, errors.RouteNotFound, errors.MethodNotAllowed)
