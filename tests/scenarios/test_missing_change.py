"""Why has listener X not seen change Y? Each failure scenario of RFD 5, asked while it lasts.

``headrace trace`` and the console's page must name the cause, whichever step the change is stuck before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest

from tests.postgres import Cluster, Database
from tests.scenarios.listeners import post
from tests.scenarios.missing_change import LISTENER, NO_ROOM, SHORT, Stage, staged
from tests.servers import code_of
from tests.waiting import wait_until

TOLD_S_MAX = 75.0
"""An agent that is gone is known as that after 30 s."""
TIME = r"\d{4}-\d\d-\d\dT[\d:.]+Z"


class Scenario(NamedTuple):
    """``asked``: what is traced, a key or a sequence id. ``state``: of the entry. ``says``: the cause, a pattern.

    ``consumer``: the state of the listener, empty where nobody can have been given the entry.
    """

    feed: str
    asked: tuple[str, ...]
    state: str
    says: str
    consumer: str = ""


SCENARIOS = {
    "VMAPI is partitioned from Moray": Scenario(
        "source-cut-off", ("--key", '["public","item",2]'), "not-found",
        rf"the agent agent-of-source-cut-off does not reach its source, as it said at {TIME}: .*\(source-unavailable\)",
    ),
    "a row is refused for good": Scenario(
        "refused", ("--key", '["main","item",2]'), "not-found",
        rf"the agent agent-of-refused ended (by an error )?at {TIME}: .*\(too-large\)",
    ),
    "another owner took the feed": Scenario(
        "taken", ("--key", '["main","item",2]'), "not-found",
        r"the agent agent-of-taken does not own the feed: another-agent does, with epoch \d+",
    ),
    "the publisher is quarantined": Scenario(
        "quarantined", ("3",), "beyond-head",
        rf"the publisher agent-of-quarantined is quarantined since {TIME}: it posted sequence id 2 again",
    ),
    "an older change of the object is there, the newer one is not": Scenario(
        "quarantined", ("--key", "object-2"), "retained",
        rf"the publisher agent-of-quarantined is quarantined since {TIME}",
    ),
    "sdc-changefeed API is partitioned from its listeners": Scenario(
        "listener-cut-off", ("4",), "retained",
        rf"not handed out yet, 1 more before it; last seen {TIME}", "waiting",
    ),
    "a listener-agent is away within the stored range": Scenario(
        "listener-away", ("4",), "retained", rf"not handed out yet; last seen {TIME}", "waiting",
    ),
    "sdc-changefeed API can't persist": Scenario(
        "no-room", ("3",), "beyond-head", r"the server takes no appends: .*disk-reserve",
    ),
    "a listener-agent is away for longer than the stored range": Scenario(
        "beyond-retention", ("1",), "dropped", r"an archive may have it: --pitr-dir", "waiting",
    ),
    "the publisher-agent crashes": Scenario(
        "crashed", ("--key", '["main","item",2]'), "not-found",
        rf"the agent agent-of-crashed has not reported since {TIME}: it does not run, or can't reach the server",
    ),
    "the publisher-agent is partitioned off from the API": Scenario(
        "cut-off", ("--key", '["main","item",2]'), "not-found",
        rf"the agent agent-of-cut-off has not reported since {TIME}: it does not run, or can't reach the server",
    ),
}  # fmt: skip
"""In the order in which they are asked about: what needs 30 s to be noticed comes last."""
RESTARTED = {"no-room": NO_ROOM, "beyond-retention": SHORT}
"""The options with which the server is started again for a scenario."""


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All scenarios, begun."""
    name = "missing_change"
    cluster.create_database(name)
    with staged(tmp_path_factory.mktemp("missing"), Database(cluster, name)) as begun:
        yield begun
    cluster.drop_database(name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_trace_and_console_say_why_a_listener_has_not_seen_a_change(stage: Stage, name: str) -> None:
    scenario = SCENARIOS[name]
    args = RESTARTED.get(scenario.feed)
    with stage.restarted(*args) if args else nullcontext():
        BEFORE.get(scenario.feed, lambda _: None)(stage)

        def said() -> tuple[int, Any] | None:
            """The answer, once it names the cause."""
            code, document = stage.trace(scenario.feed, *scenario.asked)
            return (code, document) if re.search(scenario.says, "\n".join(words(document))) else None

        found = wait_until(said, TOLD_S_MAX, what=f"trace to say {scenario.says!r}")
        assert found is not None
        code, document = found
        assert (code, document["state"]) == (int(scenario.state != "retained"), scenario.state)
        if scenario.consumer:
            (consumer,) = document["consumers"]
            assert (consumer["name"], consumer["state"]) == (LISTENER, scenario.consumer)
        assert re.search(scenario.says, stage.page(scenario.feed, *scenario.asked))


def words(document: Any) -> list[str]:
    """The sentences of an answer."""
    source = document["source"]
    consumers = [one["detail"] for one in document["consumers"]]
    return [document["detail"], *consumers, *(source["words"] if source is not None else ())]


def refuse(stage: Stage) -> None:
    """Have an append refused, as an agent would: then the server knows that it can't store."""
    answer = stage.feed("no-room").post({"changes": {"uuid": "object-3"}})
    assert (answer.status_code, code_of(answer)) == (503, "disk-reserve")


def drop(stage: Stage) -> None:
    """Append until retention has dropped the first entry."""
    feed = stage.feed("beyond-retention")

    def dropped() -> bool:
        head = stage.head(feed.name)
        post(feed, head + 1, head + 20)
        return bool(stage.server.http.get(feed.path).json()["oldest-sequence-id"] > 1)

    wait_until(dropped, 60, what="retention to drop the first entry")


BEFORE = {"no-room": refuse, "beyond-retention": drop}
"""What is done before a scenario is asked about."""
