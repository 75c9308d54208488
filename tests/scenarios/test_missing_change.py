"""Why has listener X not seen change Y? Each failure scenario of RFD 5, asked while it lasts.

``headrace trace`` and the console's page must name the cause, whichever step the change is stuck before.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.wire.documents import ms_of_rfc3339
from tests.postgres import Cluster, Database
from tests.scenarios.listeners import post
from tests.scenarios.missing_change import LISTENER, NO_ROOM, SHORT, Stage, headrace, staged
from tests.servers import code_of
from tests.waiting import wait_until

TOLD_S_MAX = 75.0
"""An agent that is gone is known as that after 15 s."""
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
        rf"the agent agent-of-refused ended by an error at {TIME}: .*\(too-large\)",
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
        "orders", ("--key", '["main","item",2]'), "not-found",
        rf"the agent agent-of-orders has not reported since {TIME}: it does not run, or can't reach the server",
    ),
}  # fmt: skip
"""In the order in which they are asked about: what needs 15 s to be noticed comes last."""
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


def test_the_walk_of_the_howto_prints_what_it_shows(stage: Stage) -> None:
    """Each block of the walk is run, and its lines compared: times, places and process ids differ."""
    asked, status, at_agent, again = walk()
    wait_until(
        lambda: "has not reported" in printed(stage, asked[0]), TOLD_S_MAX, what="the agent to be gone"
    )
    for block in (asked, status, at_agent):
        check_block(stage, block)
    stage.lines["orders"].resume()
    polled = wait_until(lambda: new_entry(stage), TOLD_S_MAX, what="the change to be delivered")
    assert polled
    wait_until(
        lambda: "posted all" in (shown := printed(stage, again[0])) and " delivered " in shown, TOLD_S_MAX
    )
    check_block(stage, again)
    steps = {one["step"]: ms_of_rfc3339(one["by"]) for one in stage.trace("orders", *ORDERED)[1]["steps"]}
    assert steps["marked"] - steps["committed"] < steps["posted"] - steps["marked"], (
        "it was marked long before"
    )


ORDERED = ("--key", '["main","item",2]')


def walk() -> list[list[str]]:
    """The blocks of the walk: a command, and the lines that it prints."""
    text = (Path(__file__).parents[2] / "docs" / "howto" / "debug-a-missing-change.md").read_text("utf-8")
    section = text.split("## A walk", 1)[1].split("\n## ", 1)[0]
    return [
        block.strip().splitlines()
        for block in re.findall(r"```\n(.*?)```", section, re.DOTALL)
        if block.startswith("$ headrace ")
    ]


def new_entry(stage: Stage) -> bool:
    """Poll as the listener does; whether the newest entry was given."""
    feed = stage.feed("orders")
    answer = feed.poll(stage.head("orders") - 1, LISTENER)
    return answer.status_code == 200 and '"name":"name 2' in answer.text


def printed(stage: Stage, line: str) -> str:
    """What the command of a block prints."""
    _, *words = shlex.split(line.removeprefix("$ "))
    if words[0] == "agent":
        words = [str(stage.folder / "orders" / "agent.toml") if one == "agent.toml" else one for one in words]
        return headrace(*words, HEADRACE_DSN=stage.shops["orders"].dsn).stdout
    return headrace(*words, "--server", stage.server.url).stdout


def check_block(stage: Stage, block: list[str]) -> None:
    """Check that the lines of a block are printed, in its order; there may be others between them."""
    lines = iter([blurred(line) for line in printed(stage, block[0]).splitlines()])
    seen: list[str] = []
    for wanted in map(blurred, block[1:]):
        for line in lines:
            seen.append(line)
            if line == wanted:
                break
        else:
            raise AssertionError(f"{wanted!r} is not in {seen}")


def blurred(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, stands_for in (
        (TIME, "TIME"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"0x[0-9a-f]+|[0-9a-f]{16}(\.seg|\.\d+\.\d+)", "PLACE"),
        (r"(gone|agent-of-orders)\s.*?(\S+ \d+)\s+last heard", r"\1 HOST last heard"),
        (r", [+-]\d+\.\d+ s", ""),  # which a step of the same millisecond as the append lacks
        (r"\d+", "N"),
        (r"\s+", " "),
    ):
        line = re.sub(pattern, stands_for, line)
    return line.strip()
