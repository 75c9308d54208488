"""Where everything stands at one moment: segments, consumers, and the plan that follows. Blocks; call it from a thread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.log.contract import SegmentView, Store
from headrace.log.history import written_at_ms
from headrace.log.metadata.contract import Metadata, SubscriberRow
from headrace.log.retention.consumers import find_consumers
from headrace.log.retention.loss import Loss, time_to_loss
from headrace.log.retention.plan import Consumer, Plan, Terms, plan_retention
from headrace.server.retention.rates import RateWindow
from headrace.wire.documents import TimeToLoss


@dataclass(frozen=True)
class Moment:
    """The journal's segments and what is in force; ``at_s`` is the moment's monotonic time."""

    terms: Terms
    at_s: float
    segments: Sequence[SegmentView]

    @property
    def end(self) -> int:
        """The journal's end."""
        return self.segments[-1].end

    def loss_of(self, consumer: Consumer, store: Store, window: RateWindow) -> Loss:
        """Return when ``consumer`` loses its place at the rates of ``window``."""
        needed_ms: int | None = None
        rates = window.rates(consumer.key, consumer.position or 0, self.at_s, self.end)
        if consumer.position is not None and not consumer.lost and consumer.position < self.end:
            needed_ms = written_at_ms(store, consumer.position)
        return time_to_loss(consumer, needed_ms, self.segments, rates, self.terms)


@dataclass(frozen=True)
class Survey(Moment):
    """One look at the journal and at everyone who reads it."""

    consumers: Sequence[Consumer]
    plan: Plan


def take_survey(
    store: Store, metadata: Metadata, terms: Terms, at_s: float, present: Iterable[SubscriberRow] = ()
) -> Survey:
    """Look at ``store`` and ``metadata`` as they are now; ``present``: the subscribers that are there.

    Raises StoreUnavailable, JournalCorrupt.
    """
    consumers = find_consumers(store, metadata, terms, present=present)
    segments = store.segments()
    return Survey(terms, at_s, segments, consumers, plan_retention(segments, consumers, terms))


def look_again(
    survey: Survey, store: Store, metadata: Metadata, present: Iterable[SubscriberRow] = ()
) -> Survey:
    """Return ``survey`` with who has begun to hold since, and the plan that follows: it drops as much, or less.

    Raises StoreUnavailable, JournalCorrupt.
    """
    store.refresh()
    consumers = find_consumers(store, metadata, survey.terms, known=survey.consumers, present=present)
    plan = plan_retention(survey.segments, consumers, survey.terms)
    if plan.position > survey.plan.position:  # somebody has let go: the next pass sees to it
        return survey
    return replace(survey, consumers=consumers, plan=plan)


def loss_document(loss: Loss) -> TimeToLoss:
    """Return a time to loss as the API says it."""
    seconds = round(loss.seconds, 3) if math.isfinite(loss.seconds) else None
    return TimeToLoss(state=loss.state.value, seconds=seconds, text=loss.describe())
