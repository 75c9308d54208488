"""What every long-running process does beside its work: names that stay, and a new connection once it is stuck."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.client.observing import (
    REPORTER_CHARS_MAX,
    healthy,
    job_name,
    observed,
    observed_beside,
    reporter_name,
)
from headrace.entries.feed import check_agent_id
from headrace.errors import ConfigInvalid, PortInUse
from headrace.runtime.health import HealthServer, HealthTerms, parse_health
from headrace.runtime.progress import Progress, Standing

WITHIN = 30.0


def test_names_are_ones_that_the_server_takes() -> None:
    assert reporter_name("capture", "shop") == "capture@shop"
    long = reporter_name("a" * 200, "shop")
    assert len(long) == REPORTER_CHARS_MAX
    assert long != reporter_name("a" * 200, "shop2")
    for name in (
        long,
        job_name("tables", "f" * 200, "/tables"),
        job_name("kafka", "vmapi::vm", "s3://b/c d"),
    ):
        check_agent_id(name)
    assert job_name("tables", "shop", "/a") == job_name("tables", "shop", "/a")
    assert job_name("tables", "shop", "/a") != job_name("tables", "shop", "/b")


async def test_what_is_stuck_connects_anew_and_an_error_of_the_work_goes_through() -> None:
    progress, again = Progress(stalled_after_s=0.05), asyncio.Event()
    seen: list[list[Standing]] = []

    async def reconnect(stuck: list[Standing]) -> None:
        seen.append(stuck)
        again.set()

    async def work() -> None:
        async with observed(progress, None, reconnect):
            progress.work("stream").set_waiting(1)
            async with asyncio.timeout(WITHIN):
                await again.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert [one.name for one in seen[0]] == ["stream"]


def test_the_same_beside_work_without_an_event_loop() -> None:
    progress, again = Progress(stalled_after_s=0.05), threading.Event()
    before = threading.active_count()

    def work() -> None:
        with observed_beside(progress, None, lambda stuck: again.set()):
            progress.work("tables of shop").set_waiting(1)
            assert again.wait(WITHIN)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert threading.active_count() <= before + 1, "its own thread has ended, its pool's may idle"


def test_an_address_that_is_taken_is_said_before_the_work_begins() -> None:
    progress = Progress()
    with (
        HealthServer(parse_health("127.0.0.1:0"), progress) as taken,
        pytest.raises(PortInUse),
        healthy(progress, HealthTerms(taken.address)),
    ):
        pytest.fail("it began")
    with healthy(progress, HealthTerms()):
        assert progress.not_ready() == []


@pytest.mark.parametrize(
    ("health", "stalled_after", "named"),
    [("8475", "60s", "--health"), (None, "0s", "--stalled-after"), (None, "soon", "--stalled-after")],
)
def test_settings_that_mean_nothing_are_refused_by_name(
    health: str | None, stalled_after: str, named: str
) -> None:
    with pytest.raises(ConfigInvalid, match=named):
        HealthTerms.parse(health, stalled_after, "--")
