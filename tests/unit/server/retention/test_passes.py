"""Retention over a real log with a clock set by hand: what passes drop, who holds, who is told, what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import SequenceNotAvailable
from headrace.server.metrics.exposition import exposition
from headrace.server.reading import Known
from headrace.testing.clock import ManualClock
from headrace.wire import documents as doc
from tests.bench import append, expecting, register
from tests.unit.server.retention.benches import opened

ANYTHING = Known()


async def test_a_quiet_log_forgets_what_is_old(tmp_path: Path) -> None:
    """One entry a day never fills a segment; it goes all the same, an eighth of the retention late at most."""
    async with opened(tmp_path) as bench:
        for _ in range(4):
            await bench.write("a", 1)
            for _ in range(24):
                await bench.later(1)
        assert bench.oldest() == 4, "the third is 48 hours old now"
        for _ in range(49):
            await bench.later(1)
        assert (bench.oldest(), bench.log.tail("a").head) == (5, 4)
        assert len(bench.log.store.segments()) == 1


async def test_a_feed_that_is_all_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as bench:
        appended = await bench.log.append(append("a", "x", "y"))
        await bench.later(10)
        await bench.later(48)
    async with opened(tmp_path, clock) as bench:
        tail = await bench.service.tail("a", "agent-1")
        assert (tail.next_sequence_id, tail.newest_lsn) == (3, str(appended.last_lsn))
        assert tail.last_frame is not None
        assert (tail.last_frame.first_sequence_id, tail.last_frame.count) == (1, 2)
        again = await bench.log.append(expecting("a", 1, "x", "y"))
        assert (again.duplicate, again.last_lsn) == (True, appended.last_lsn)
        piece = await bench.service.read_range("a", 2, None, 10, Known(tail.incarnation, appended.last_lsn))
        assert not piece.frames
        with pytest.raises(SequenceNotAvailable):
            await bench.service.read_range("a", 1, None, 10, ANYTHING)
        assert (await bench.log.append(append("a", "z"))).first_sequence_id == 3


async def test_a_listener_that_holds_keeps_what_it_has_not_read(tmp_path: Path) -> None:
    async with opened(tmp_path, subscriber_expiry_s=1e9) as bench:
        await bench.write("a", 30)
        await bench.listen("holds", 17, hold=True)
        await bench.listen("falls", 3)
        await bench.later(10)
        await bench.later(48)
        assert 1 < bench.oldest() <= 18
        assert (await bench.loss("falls")).state == "lost"
        assert (await bench.loss("holds")).state == "held"
        assert bench.standing() == [], "who does not hold is no alarm"
        await bench.report("holds", 30)
        await bench.later(1)
        assert bench.oldest() == 31
        assert (await bench.listener("holds")).lag_entries == 0


async def test_it_holds_from_the_answer_to_its_registration_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.later(10)
        bench.wait(48)
        answer = await bench.service.register_listener(
            doc.RegisterListener(listener_id="new", change_feed_id="a", hold=True)
        )
        await bench.later(1)
        assert bench.oldest() == answer.oldest_sequence_id == 1


async def test_who_is_not_seen_expires_and_says_when(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.listen("holds", 17, hold=True)
        await bench.later(10)
        loss = await bench.loss("holds")
        assert (loss.state, loss.seconds) == ("by-age", 38 * 3600.0), "it would expire before"
        await bench.later(37)
        await bench.report("holds", 17)
        await bench.later(2)
        loss = await bench.loss("holds")
        assert (loss.state, loss.seconds, loss.text) == (
            "by-expiry", 22 * 3600.0, "loses its place in 22 h unless it is seen again",
        )  # fmt: skip
        await bench.later(21.99)
        assert bench.oldest() <= 18
        await bench.later(0.01)
        assert bench.oldest() == 31


async def test_a_subscriber_holds_all_feeds_and_an_ack_lets_go(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.log.register(register("b"))
        await bench.write("a", 15)
        await bench.write("b", 15)
        await bench.later(47)
        metadata, middle = bench.log.metadata, await bench.log.lsn_at("b", 4)
        assert middle is not None
        metadata.begin_subscriber("anonymous", "s", str(Lsn(0, 0, 0)), bench.clock.ms)
        await bench.later(2)
        assert (bench.oldest("a"), bench.oldest("b")) == (1, 1)
        metadata.move_subscribers([("anonymous", "s", str(middle))], bench.clock.ms)
        await bench.later(0)
        assert bench.oldest("a") == 16
        assert 1 < bench.oldest("b") <= 5
        view = (await bench.service.feed("b")).subscribers
        assert [(one.subject, one.subscriber_id, one.lag_entries) for one in view] == [("anonymous", "s", 11)]
        assert (await bench.service.feed("a")).subscribers[0].lag_entries == 0
        metadata.move_subscribers([("anonymous", "s", str(bench.log.tail("b").newest))], bench.clock.ms)
        await bench.later(0)
        assert bench.oldest("b") == 16
        assert bench.log.store.dropped_lsn() == bench.log.tail("b").newest, (
            "it stands at the edge: nothing is lost"
        )
        assert view[0].time_to_loss.state == "held"
        assert (await bench.service.feed("b")).subscribers[0].time_to_loss.state == "up-to-date"


async def test_the_byte_cap_wins_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, bytes_max=20_000, subscriber_expiry_s=1e9) as bench:
        await bench.listen("holds", 0, hold=True)
        await bench.listen("near", 0, hold=True)
        await bench.write("a", 10)
        await bench.later(0)
        assert bench.standing() == []
        while sum(one.size for one in bench.log.store.segments()) < 14_500:
            await bench.write("a", 1)
        await bench.report("near", bench.log.tail("a").head)
        await bench.later(0)
        (alarm,) = bench.standing()
        assert (alarm.code, alarm.feed) == ("retention-bytes", "")
        assert bench.oldest() == 1
        while sum(one.size for one in bench.log.store.segments()) <= 20_000:
            await bench.write("a", 1)
        await bench.later(0)
        assert 1 < bench.oldest() < 20
        assert sum(one.size for one in bench.log.store.segments()) <= 20_000
        assert sorted((one.code, one.feed, one.agent_id) for one in bench.standing()) == [
            ("place-lost", "a", "holds"),
            ("retention-bytes", "", ""),
        ]
        (lost,) = [one for one in bench.standing() if one.code == "place-lost"]
        assert "listener holds of a at sequence id 0" in lost.detail
        assert (await bench.loss("holds")).state == "lost"
        await bench.report("holds", bench.log.tail("a").head)
        await bench.report("near", bench.log.tail("a").head)
        await bench.later(60)
        await bench.later(48)
        assert bench.standing() == [], "in range again, and room again"


async def test_a_place_lost_is_an_alarm_until_its_owner_has_expired(tmp_path: Path) -> None:
    async with opened(tmp_path, bytes_max=5_000) as bench:
        await bench.listen("holds", 0, hold=True)
        await bench.write("a", 40)
        await bench.later(0)
        await bench.later(23)
        assert "place-lost" in {one.code for one in bench.standing()}
        await bench.later(1)
        assert "place-lost" not in {one.code for one in bench.standing()}


async def test_a_place_lost_in_one_feed_is_told_apart_from_the_same_name_in_another(tmp_path: Path) -> None:
    async with opened(tmp_path, bytes_max=5_000) as bench:
        await bench.log.register(register("b"))
        for feed in ("a", "b"):
            await bench.listen("holds", 0, hold=True, feed=feed)
        for _ in range(20):
            await bench.write("a", 2)
            await bench.write("b", 2)
        await bench.later(0)

        def lost() -> list[tuple[str, str]]:
            return sorted((one.feed, one.agent_id) for one in bench.standing() if one.code == "place-lost")

        assert lost() == [("a", "holds"), ("b", "holds")]
        await bench.report("holds", bench.log.tail("b").head, feed="b")
        await bench.later(0)
        assert lost() == [("a", "holds")], "it has its place again in the other alone"
        await bench.report("holds", bench.log.tail("a").head)
        await bench.later(0)
        assert lost() == []


async def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    async with opened(tmp_path, subscriber_expiry_s=60 * 3600.0) as bench:
        await bench.log.register(register("b"))
        for _ in range(6):
            await bench.write("a", 7)
            await bench.write("b", 4)
            await bench.later(8)
        await bench.listen("holds", 25, hold=True)
        await bench.listen("falls", 2)
        dropped = 0
        for _ in range(80):
            bench.wait(1)
            told = await bench.service.explain_retention()
            named = [one for one in told.segments if one.goes]
            assert told.oldest_position == bench.log.store.oldest_position()
            await bench.later(0)
            assert bench.log.store.oldest_position() == told.drops_before
            assert {one.change_feed_id: one.oldest_afterwards for one in told.feeds} == {
                feed: bench.oldest(feed) for feed in ("a", "b")
            }
            assert sum(one.size for one in bench.log.store.segments()) == told.bytes_afterwards
            for one in told.consumers:
                if one.loses_now:
                    assert (await bench.loss(one.name)).state == "lost"
            dropped += len(named)
        assert dropped > 5
        assert (bench.oldest("a"), bench.oldest("b")) == (43, 25)


async def test_rates_are_those_of_the_window(tmp_path: Path) -> None:
    """A listener that reads half as fast as is written, under a byte cap: the cap meets it when it has gained all."""
    async with opened(tmp_path, bytes_max=60_000, subscriber_expiry_s=1e9) as bench:
        await bench.listen("slow", 0, hold=True)
        for minute in range(9):
            await bench.later(1 / 60)
            await bench.write("a", 10)
            await bench.report("slow", 5 * (minute + 1))
        bench.wait(1 / 60)
        head_bytes = bench.log.store.end()
        loss = await bench.loss("slow")
        assert loss.state == "by-byte-cap"
        assert loss.seconds is not None
        written = (head_bytes - 0x100) / 540
        left = 60_000 - sum(one.size for one in bench.log.store.segments()) / 2
        assert loss.seconds == pytest.approx(left / (written / 2), rel=0.25)


async def test_metrics_tell_the_truth(tmp_path: Path) -> None:
    async with opened(tmp_path, subscriber_expiry_s=1e9) as bench:
        await bench.write("a", 30)
        await bench.listen("holds", 17, hold=True)
        await bench.listen("stands", 20)
        bench.log.metadata.begin_subscriber("anonymous", "s", str(bench.log.tail("a").newest), bench.clock.ms)
        await bench.later(10)
        await bench.write("a", 3)
        found = _samples((await exposition(bench.service.measured)).decode())
        labels = 'consumer="holds",feed="a",kind="listener"'
        view = await bench.listener("holds")
        assert found[f"headrace_consumer_lag_entries{{{labels}}}"] == view.lag_entries == 16
        assert found[f"headrace_consumer_lag_bytes{{{labels}}}"] == view.lag_bytes
        assert found['headrace_time_to_loss_seconds{consumer="stands",feed="a",kind="listener"}'] == 38 * 3600
        assert found['kdb_wal_subscriber_lag_lsn{subscriber_id="anonymous/s"}'] == 3
        assert found["headrace_retention_bytes"] == sum(one.size for one in bench.log.store.segments())
        assert found["headrace_retention_bytes"] == sum(
            path.stat().st_size for path in (tmp_path / "journal").iterdir()
        )
        await bench.later(48)
        found = _samples((await exposition(bench.service.measured)).decode())
        assert found['headrace_time_to_loss_seconds{consumer="stands",feed="a",kind="listener"}'] == 0
        assert found["headrace_retention_held_bytes"] > 0
        gone = found['headrace_retention_dropped_bytes_total{reason="older-than-retention"}']
        assert gone > 0 == found['headrace_retention_dropped_bytes_total{reason="byte-cap"}']
        assert found["headrace_retention_segments"] == len(bench.log.store.segments())


def _samples(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}
