"""What the server makes of the reports of processes: alarms while one is stuck, gone when nothing comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.access.grants import EVERYTHING, Grant, Role
from headrace.errors import ConfigInvalid, Forbidden, InvalidRequest, ServerBusy, Stalled
from headrace.log.log import Log
from headrace.server import reports as module
from headrace.server.reports import FORGET_MS, GONE_AFTER_S, Reports, parse_gone_after
from headrace.testing.clock import ManualClock
from headrace.wire.report_documents import ReportIn
from tests.reports import report

PUBLISHER = Grant("pub", frozenset({Role.PUBLISHER}), ("shop*",))
LISTENER = Grant("lis", frozenset({Role.LISTENER}), ("shop*",))
REPLICA = Grant("rep", frozenset({Role.REPLICATION}), tenant="default")


def said(feed: str = "shop", state: str = "moving", **work: Any) -> ReportIn:
    return msgspec.convert(report(feed, state, **work), ReportIn)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    opened = Log.open(tmp_path / "data")
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture
def reports(log: Log, clock: ManualClock) -> Reports:
    return Reports(log, clock)


def standing(log: Log) -> list[tuple[str, str, str]]:
    """The alarms that stand: code, feed, agent."""
    return [(row.code, row.feed, row.agent_id) for row in log.metadata.alarms() if row.cleared_at_ms is None]


async def test_idle_gone_and_stuck_are_told_apart(reports: Reports, clock: ManualClock, log: Log) -> None:
    await reports.keep("agent", "a", said(state="idle"))
    assert [one.state for one in (await reports.view()).reports] == ["idle"]
    clock.ms += round(GONE_AFTER_S * 1000) + 1
    assert [one.state for one in (await reports.view()).reports] == ["gone"]
    await reports.keep("agent", "a", said(state="stuck", detail="the table is locked"))
    (view,) = (await reports.view()).reports
    assert (view.kind, view.name, view.state) == ("agent", "a", "stuck")
    assert view.report.works[0].detail == "the table is locked"
    assert standing(log) == [(Stalled.code, "shop", "a")]
    assert "the table is locked" in log.metadata.alarms()[0].detail


async def test_the_alarm_goes_when_it_moves_ends_or_works_elsewhere(reports: Reports, log: Log) -> None:
    for over in (said(), said(state="ending"), said("shop-2", state="idle")):
        await reports.keep("agent", "a", said(state="stuck"))
        assert standing(log) == [("stalled", "shop", "a")]
        await reports.keep("agent", "a", over)
        assert standing(log) == []


async def test_a_restarted_server_clears_what_is_over(log: Log, clock: ManualClock) -> None:
    await Reports(log, clock).keep("listener", "a", said(state="stuck"))
    await Reports(log, clock).keep("agent", "a", said())
    assert standing(log) == [("stalled", "shop", "listener a")], "an agent of that name is another process"
    anew = Reports(log, clock)
    assert [one.state for one in (await anew.view()).reports] == ["moving", "stuck"], "read back"
    await anew.keep("listener", "a", said())
    assert standing(log) == []


def failed(code: str = "feed-owned", feed: str = "shop") -> ReportIn:
    return msgspec.convert(report(feed, "failed") | {"code": code, "detail": "why it ended"}, ReportIn)


async def test_a_failure_is_an_alarm_of_its_own_code_until_the_process_is_well(
    reports: Reports, clock: ManualClock, log: Log
) -> None:
    await reports.keep("agent", "a", said(state="stuck"))
    await reports.keep("agent", "a", failed())
    assert standing(log) == [("feed-owned", "shop", "agent a")]
    assert "the agent a on db1 has ended with an error: why it ended" in log.metadata.alarms()[0].detail
    clock.ms += round(GONE_AFTER_S * 1000) + 1
    assert [one.state for one in (await reports.view()).reports] == ["failed"], "why it is gone is known"
    await reports.keep("agent", "a", failed("agent-fenced"))
    assert standing(log) == [("agent-fenced", "shop", "agent a")]
    await Reports(log, clock).keep("agent", "a", said(state="idle"))
    assert standing(log) == [], "by a server that was restarted meanwhile"


async def test_a_report_clears_no_alarm_that_is_not_its_own(reports: Reports, log: Log) -> None:
    log.metadata.raise_alarm("duplicate-entry", "quarantined", 1, feed="shop", agent_id="a")
    log.metadata.raise_alarm("place-lost", "its place", 1, feed="shop", agent_id="a")
    for one in (failed("duplicate-entry"), said(state="idle"), said(state="ending")):
        await reports.keep("agent", "a", one)
    assert sorted(standing(log)) == [("duplicate-entry", "shop", "a"), ("place-lost", "shop", "a")]


async def test_a_process_of_many_feeds_dies_once(reports: Reports, log: Log) -> None:
    many = report("shop", "failed") | {"code": "source-unfit"}
    many["works"] = [report(feed)["works"][0] for feed in ("shop", "shop-2", "shop-3")]
    await reports.keep("agent", "a", msgspec.convert(many, ReportIn))
    assert standing(log) == [("source-unfit", "", "agent a")]


def test_a_code_is_a_code() -> None:
    with pytest.raises(msgspec.ValidationError):
        failed("<b>")


async def test_equal_reports_are_written_now_and_then(reports: Reports, log: Log, clock: ManualClock) -> None:
    def written() -> int:
        return log.metadata.reports.all()[0].reported_at_ms

    await reports.keep("agent", "a", said())
    first = written()
    clock.ms += 5_000
    await reports.keep("agent", "a", said())
    assert written() == first
    await reports.keep("agent", "a", said(state="stuck"))
    assert written() == first + 5_000, "a change is written at once"
    clock.ms += 10_000
    await reports.keep("agent", "a", said(state="stuck"))
    assert written() == first + 15_000


async def test_what_is_forgotten_takes_its_alarms_along(
    reports: Reports, clock: ManualClock, log: Log
) -> None:
    log.metadata.raise_alarm("duplicate-entry", "quarantined", 1, feed="shop", agent_id="b")
    await reports.keep("listener", "a", said(state="stuck"))
    await reports.keep("agent", "b", failed())
    clock.ms += FORGET_MS
    await reports.keep("agent", "c", said(state="stuck"))
    assert len(standing(log)) == 4, "not a moment too early"
    clock.ms += 10_000
    await reports.keep("agent", "c", said(state="stuck"))
    assert sorted(standing(log)) == [("duplicate-entry", "shop", "b"), ("stalled", "shop", "c")]
    assert [one.name for one in (await reports.view()).reports] == ["c"]


async def test_a_process_that_is_gone_for_good_can_be_removed(
    reports: Reports, clock: ManualClock, log: Log
) -> None:
    other_server = Reports(log, clock)
    await reports.keep("agent", "a", said(state="stuck"))
    await other_server.keep("listener", "a", said(state="stuck"))
    clock.ms += round(GONE_AFTER_S * 1000) + 1
    await other_server.remove("agent", "a")
    assert standing(log) == [("stalled", "shop", "listener a")]
    for server in (reports, other_server):
        assert [one.kind for one in (await server.view()).reports] == ["listener"], "at every server"
    await reports.keep("agent", "a", said(state="stuck"))
    assert len(standing(log)) == 2, "it is back"
    for kind, name in (("agent", "a"), ("agent", "a"), ("agent", "nobody")):
        await reports.remove(kind, name)
    assert standing(log) == [("stalled", "shop", "listener a")]
    with pytest.raises(InvalidRequest):
        await reports.remove("server", "a")


async def test_who_may_report_as_what(reports: Reports) -> None:
    good = [
        ("agent", PUBLISHER, "shop"), ("capture", PUBLISHER, "shop"), ("listener", LISTENER, "shop"),
        ("pipeline", LISTENER, "shop"), ("backup", REPLICA, ""), ("pipeline", EVERYTHING, ""),
    ]  # fmt: skip
    for number, (kind, grant, feed) in enumerate(good):
        await reports.keep(kind, f"n{number}", said(feed), grant)
    bad = [
        ("agent", LISTENER, "shop"), ("agent", PUBLISHER, "other"), ("agent", PUBLISHER, ""),
        ("listener", PUBLISHER, "shop"), ("listener", REPLICA, "shop"), ("backup", PUBLISHER, "shop"),
    ]  # fmt: skip
    for kind, grant, feed in bad:
        with pytest.raises(Forbidden):
            await reports.keep(kind, "m", said(feed), grant)
    for kind, name in (("server", "a"), ("agent", "a b"), ("agent", "")):
        with pytest.raises(InvalidRequest):
            await reports.keep(kind, name, said())


async def test_a_name_is_its_reporters_while_that_lives(reports: Reports, clock: ManualClock) -> None:
    other = Grant("other", PUBLISHER.roles, PUBLISHER.feeds)
    await reports.keep("agent", "a", said(), PUBLISHER)
    with pytest.raises(Forbidden):
        await reports.keep("agent", "a", said(), other)
    await reports.keep("agent", "a", said(), PUBLISHER)
    clock.ms += round(GONE_AFTER_S * 1000) + 1
    await reports.keep("agent", "a", said(), other)


async def test_too_many_processes_are_refused_until_some_are_gone(
    reports: Reports, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORTERS_MAX", 2)
    for name in "ab":
        await reports.keep("agent", name, said())
    with pytest.raises(ServerBusy):
        await reports.keep("agent", "c", said())
    clock.ms += round(GONE_AFTER_S * 1000) + 1
    await reports.keep("agent", "c", said())


async def test_how_long_a_process_may_be_silent_can_be_set(clock: ManualClock, log: Log) -> None:
    reports = Reports(log, clock, gone_after_s=parse_gone_after("1m"))
    await reports.keep("agent", "a", said(state="idle"))
    clock.ms += 60_000
    assert [one.state for one in (await reports.view()).reports] == ["idle"]
    clock.ms += 1
    assert [one.state for one in (await reports.view()).reports] == ["gone"]


@pytest.mark.parametrize("text", ["0s", "5s", "9.9s", "soon"])
def test_a_time_in_which_a_process_can_not_report_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="--gone-after"):
        parse_gone_after(text)
