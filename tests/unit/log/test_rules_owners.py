"""Who may append: registrations, epochs, takeovers, incarnations, tenants, the clock; and the order of the checks."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.entries.hlc import from_ms
from headrace.errors import (
    ClockLead,
    DuplicateEntry,
    FeedNotFound,
    FeedOwned,
    FeedRecreated,
    Fenced,
    HeadraceError,
    InvalidRequest,
    NotRegistered,
    Quarantined,
    TooLarge,
)
from headrace.log.requests import Appended, Release
from headrace.log.tail import FeedTail
from headrace.wire.entry import decode_entry
from headrace.wire.frame import FRAME_BYTES_MAX, Area, FrameKind, decode_area
from tests.bench import INCARNATION, append, expecting, register
from tests.unit.log.court import FEED, WALL_MS, Court


@pytest.fixture
def court() -> Court:
    made = Court()
    made.register()
    return made


def test_first_registration_makes_the_feed(court: Court) -> None:
    tail = court.tail()
    assert (tail.name, tail.region_id, tail.owner, tail.epoch, tail.next_sequence_id) == (
        FEED,
        1,
        "agent-1",
        1,
        1,
    )
    assert (tail.incarnation, tail.tenant) == (INCARNATION, "default")
    assert court.register(feed="other").region_id == 2


def test_same_instance_keeps_its_epoch_and_writes_nothing(court: Court) -> None:
    frames = len(court.frames)
    assert court.register().epoch == 1
    assert court.register(takeover=True, new_incarnation="another").incarnation == INCARNATION
    assert len(court.frames) == frames


def test_twin_fences_the_older_process(court: Court) -> None:
    assert court.register(instance="twin").epoch == 2
    with pytest.raises(Fenced) as refusal:
        court.append("a", epoch=1)
    assert refusal.value.members.items() >= {"owner": "agent-1", "epoch": 2}.items()
    assert court.append("a", epoch=2).first_sequence_id == 1


def test_no_epoch_is_that_of_the_agents_last_registration(court: Court) -> None:
    court.register(instance="twin")
    assert court.append("a").first_sequence_id == 1


def test_another_agent_is_refused_without_takeover(court: Court) -> None:
    with pytest.raises(FeedOwned) as refusal:
        court.register("agent-2")
    assert refusal.value.members.items() >= {"owner": "agent-1"}.items()
    with pytest.raises(NotRegistered):
        court.append("a", producer="agent-2")


def test_takeover_and_takeover_back(court: Court) -> None:
    assert court.register("agent-2", takeover=True).epoch == 2
    for epoch in (None, 1):
        with pytest.raises(Fenced):
            court.append("a", epoch=epoch)
    assert court.append("a", producer="agent-2", epoch=2).first_sequence_id == 1
    assert court.register(takeover=True).epoch == 3
    for epoch in (None, 2):
        with pytest.raises(Fenced):
            court.append("b", producer="agent-2", epoch=epoch)
    with pytest.raises(Fenced):
        court.append("b", epoch=1)
    assert court.append("b").first_sequence_id == 2


def test_other_agent_with_the_present_epoch_is_fenced(court: Court) -> None:
    court.register("agent-2", takeover=True)
    with pytest.raises(Fenced):
        court.append("a", epoch=2)


def test_epoch_that_was_never_given(court: Court) -> None:
    with pytest.raises(NotRegistered) as refusal:
        court.append("a", epoch=2)
    assert refusal.value.members.items() >= {"epoch": 1}.items()


def test_appends_after_a_takeover_in_the_same_group_are_fenced(court: Court) -> None:
    before, taken, after, new = court.ask(
        append(FEED, "a"),
        register(FEED, "agent-2", takeover=True),
        append(FEED, "b"),
        append(FEED, "c", producer="agent-2"),
    )
    assert isinstance(before, Appended)
    assert isinstance(taken, FeedTail)
    assert isinstance(after, Fenced)
    assert isinstance(new, Appended)
    assert new.first_sequence_id == 2


def test_unknown_feed_and_unregistered_publisher(court: Court) -> None:
    with pytest.raises(FeedNotFound):
        court.append("a", feed="nowhere")
    with pytest.raises(FeedNotFound):
        court.one(Release("nowhere", "agent-1"))
    with pytest.raises(NotRegistered):
        court.append("a", producer="stranger")


def test_incarnation(court: Court) -> None:
    assert court.append("a", incarnation=INCARNATION).incarnation == INCARNATION
    with pytest.raises(FeedRecreated) as refusal:
        court.append("b", incarnation="another")
    assert refusal.value.members.items() >= {"incarnation": INCARNATION}.items()
    with pytest.raises(FeedRecreated):  # judged before anything else, of a stranger too
        court.append("b", producer="stranger", incarnation="another")


def test_tenant_stays(court: Court) -> None:
    court.register(feed="theirs", tenant="acme")
    assert court.register(feed="theirs", instance="i2").tenant == "acme"
    assert court.register(feed="theirs", instance="i3", tenant="acme").epoch == 3
    with pytest.raises(InvalidRequest) as refusal:
        court.register(feed="theirs", tenant="other")
    assert refusal.value.members.items() >= {"member": "tenant-id"}.items()
    court.append("a", feed="theirs")
    entry = decode_entry(next(court.frames[-1].entries()), 1)
    assert (entry.tenant_id, entry.key_prefix) == ("acme", "eu:acme:theirs:")


def test_order_of_checks(court: Court) -> None:
    """Incarnation -> fenced? -> quarantined? -> already appended? -> expected place: one wrong thing less each time."""
    court.append("a")
    with pytest.raises(DuplicateEntry):
        court.append("a", sequence_ids=(1,))
    court.register(instance="twin")

    def send(**fields: Any) -> Appended:
        wrong: dict[str, Any] = {"incarnation": "other", "epoch": 1, "expected_offsets": (9,)}
        return court.send(append(FEED, "x", **wrong | fields))

    with pytest.raises(FeedRecreated):
        send()
    with pytest.raises(Fenced):
        send(incarnation=INCARNATION)
    with pytest.raises(Quarantined):
        send(incarnation=INCARNATION, epoch=2)
    with pytest.raises(Quarantined):
        court.send(expecting(FEED, 1, "a", epoch=2))
    with pytest.raises(Fenced):
        court.send(expecting(FEED, 1, "a", epoch=1))
    court.one(Release(FEED, "agent-1"))
    assert court.send(expecting(FEED, 1, "a", epoch=2)).duplicate


def test_clock_that_leads_too_far_refuses_appends(court: Court) -> None:
    court.append("a")
    court.wall_ms = WALL_MS - 3_600_000
    assert court.append("b").last_sequence_id == 2
    court.wall_ms -= 1
    for request in (append(FEED, "c"), register("other")):
        with pytest.raises(ClockLead) as refusal:
            court.one(request)
        assert refusal.value.retryable
    court.wall_ms += 1
    assert court.append("c").last_sequence_id == 3


def test_wall_clock_that_jumps_back_only_advances_the_logical_part(court: Court) -> None:
    first = court.append("a").first_lsn
    court.wall_ms -= 1000
    assert court.append("b").first_lsn.global_ts == first.global_ts + 1


def test_raft_index_wraps_inside_an_append(court: Court) -> None:
    start = (1 << 32) - 2
    appended = court.append("a", "b", "c", sequence_ids=(start, -1, -1))
    after = court.append("d")
    frame = court.frames[-2]
    stored = [decode_entry(entry, start + at).lsn for at, entry in enumerate(frame.entries())]
    assert [lsn.raft_index for lsn in stored] == [start, start + 1, 0]
    lsns = [*stored, after.first_lsn]
    assert lsns == sorted(set(lsns))
    assert (appended.first_lsn, appended.last_lsn) == (stored[0], stored[2])
    assert court.tail().next_sequence_id == (1 << 32) + 2
    assert court.send(expecting(FEED, start + 1, "b", "c", "d")).last_lsn == after.first_lsn


def test_timestamps_grow_over_all_feeds_and_control_frames(court: Court) -> None:
    court.ask(
        register("x"),
        register("y"),
        append("x", "1"),
        append("y", "1", "2"),
        append("x", "2"),
        register("x", instance="i"),
    )
    stamps = [frame.header.global_ts for frame in court.frames]
    assert stamps == sorted(set(stamps))
    assert stamps[0] == from_ms(WALL_MS)


def test_frame_carries_what_a_restart_needs(court: Court) -> None:
    appended = court.append("a", "b", source=b"\x00gtid", transaction_ends=(1,), epoch=1)
    header, area = court.frames[-1].header, decode_area(court.frames[-1].area)
    assert (header.kind, header.epoch, header.count, header.region_id) == (FrameKind.ENTRIES, 1, 2, 1)
    assert area == {
        Area.PRODUCER: b"agent-1",
        Area.SOURCE_POSITION: b"\x00gtid",
        Area.TRANSACTION_ENDS: bytes.fromhex("01000000"),
    }
    place = court.tail().producers["agent-1"]
    assert (place.first_sequence_id, place.count, place.source_position) == (1, 2, "AGd0aWQ=")
    assert place.global_ts == appended.first_lsn.global_ts
    assert place.digest == header.digest.hex()


def test_frame_over_the_bound_is_refused_and_harms_nothing_else(court: Court) -> None:
    large, small = court.ask(append(FEED, "x" * FRAME_BYTES_MAX), append(FEED, "a"))
    assert isinstance(large, TooLarge)
    assert isinstance(small, Appended)
    assert small.first_sequence_id == 1


def test_refusals_are_outcomes_in_order(court: Court) -> None:
    outcomes = court.ask(
        append("nowhere", "a"), append(FEED, "a"), append(FEED, "b", epoch=9), append(FEED, "b")
    )
    assert [isinstance(outcome, HeadraceError) for outcome in outcomes] == [True, False, True, False]
    assert court.tail().next_sequence_id == 3
