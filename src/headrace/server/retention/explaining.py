"""A survey in words: the document of ``GET /retention``. It promises what the next pass does if nobody moves until then."""

from __future__ import annotations

import asyncio

from headrace.entries.hlc import to_ms
from headrace.log.contract import Store
from headrace.log.history import first_sequence_at
from headrace.log.log import Log
from headrace.log.retention.plan import Consumer, ConsumerKind, RetentionSettings, SegmentFate
from headrace.server.retention.loop import Retention
from headrace.server.retention.rates import RateWindow
from headrace.server.retention.survey import Survey, loss_document
from headrace.wire import retention_documents as doc
from headrace.wire.documents import rfc3339


async def explain(log: Log, retention: Retention) -> doc.RetentionView:
    """Return what retention would do now, and why; changes nothing. Raises StoreUnavailable, JournalCorrupt."""
    survey = await retention.survey()
    return await asyncio.to_thread(_explain, survey, log.store, log.retention, retention.window)


def _explain(
    survey: Survey, store: Store, settings: RetentionSettings, window: RateWindow
) -> doc.RetentionView:
    plan, terms = survey.plan, survey.terms
    drops = plan.position > survey.segments[0].first_position
    losing = {id(one.consumer) for one in plan.losing}
    return doc.RetentionView(
        now=rfc3339(terms.now_ms),
        terms=doc.RetentionTerms(
            retention_seconds=settings.retention_s,
            bytes_max=terms.bytes_max,
            subscriber_expiry_seconds=settings.subscriber_expiry_s,
            every_seconds=settings.every_s,
        ),
        bytes=plan.bytes_before,
        bytes_afterwards=plan.bytes_after,
        oldest_position=survey.segments[0].first_position,
        drops_before=plan.position,
        newest_dropped_lsn=str(store.dropped_lsn()),
        segments=[_segment(one) for one in plan.fates],
        consumers=[
            _consumer(one, survey, store, window, loses_now=id(one) in losing) for one in survey.consumers
        ],
        feeds=[
            doc.FeedRetention(
                change_feed_id=tail.name,
                oldest_sequence_id=tail.oldest,
                oldest_afterwards=first_sequence_at(store, tail, plan.position) if drops else tail.oldest,
                next_sequence_id=tail.next_sequence_id,
            )
            for tail in store.tails()
        ],
    )


def _segment(one: SegmentFate) -> doc.SegmentRetention:
    segment = one.segment
    return doc.SegmentRetention(
        first_position=segment.first_position,
        end_position=segment.end,
        bytes=segment.size,
        newest_at=rfc3339(to_ms(segment.newest_global_ts)),
        fate=one.fate.value,
        goes=one.fate.goes,
        old_at=rfc3339(one.old_at_ms),
        goes_at=rfc3339(one.goes_at_ms) if one.goes_at_ms is not None else None,
        held_by=[holder.describe() for holder in one.holders],
    )


def _consumer(
    one: Consumer, survey: Survey, store: Store, window: RateWindow, *, loses_now: bool
) -> doc.ConsumerRetention:
    position = one.position if one.position is not None and not one.lost else None
    held = [segment.size for segment in survey.segments if position is not None and position < segment.end]
    until = one.hold_until_ms
    return doc.ConsumerRetention(
        kind=one.kind.value,
        name=one.name,
        feed=one.feed,
        place=one.place,
        position=position,
        bytes_held=sum(held) if one.holds(survey.terms.now_ms) else 0,
        seen_at=rfc3339(one.seen_at_ms),
        holds_until=rfc3339(until) if until is not None and one.holds(survey.terms.now_ms) else None,
        forgotten_at=rfc3339(survey.terms.forgets_at(one.seen_at_ms))
        if one.kind is ConsumerKind.SUBSCRIBER
        else None,
        lost=one.lost,
        loses_now=loses_now,
        time_to_loss=loss_document(survey.loss_of(one, store, window)),
    )
