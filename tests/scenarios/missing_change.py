"""The failure scenarios of RFD 5 staged beside each other on one server, each with a change that a listener does not see.

What takes long to be noticed (15 seconds without a report) begins when the stage is set, and is asked about last.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests import forks
from tests.agents import AgentProcess
from tests.postgres import Database
from tests.proxy import Proxy
from tests.scenarios.listeners import ListenProcess, post
from tests.scenarios.shop import Shop
from tests.servers import Feed, ServerProcess, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

SETTLED_S_MAX = 60.0
TOO_LARGE = 2 << 20
NO_ROOM = ["--disk-reserve", "8000000g"]
SHORT = ["--retention", "1s", "--retention-every", "100ms"]
LISTENER = "web-cache"


class Stage:
    """One server, and for each scenario a feed with its publisher."""

    def __init__(self, folder: Path, server: ServerProcess, database: Database, stack: ExitStack) -> None:
        self.folder, self.server, self._stack = folder, server, stack
        self.shops: dict[str, Shop] = {}
        self.agents: dict[str, AgentProcess] = {}
        self.lines: dict[str, Proxy] = {}
        self.database = database
        self.listener: ListenProcess | None = None

    def set(self) -> None:
        """Start every publisher and listener, let each deliver something, then break what is to be broken."""
        port = int(self.server.address.rpartition(":")[2])
        for name in ("orders", "listener-cut-off"):
            self.lines[name] = self._stack.enter_context(Proxy("127.0.0.1", port))
        for name in ("crashed", "orders", "refused", "taken"):
            shop = self.shops[name] = Shop(self.folder / f"{name}.db", name)
            shop.write(1)
            line = self.lines.get(name)
            url = self.server.url if line is None else f"http://127.0.0.1:{line.port}"
            self._agent(name, url, shop.dsn)
        self._source()
        for name in ("quarantined", "no-room", "listener-away", "listener-cut-off", "beyond-retention"):
            assert self.feed(name).register().status_code == 200
            post(self.feed(name), 1, 2)
        for name in ("listener-away", "beyond-retention"):
            assert self.feed(name).listener(LISTENER).status_code == 200
        wait_until(
            lambda: all(self.head(name) > 0 for name in self.agents),
            SETTLED_S_MAX,
            what="all to be delivered",
        )
        assert self.feed("orders").listener(LISTENER).status_code == 200
        wait_until(
            lambda: not any(shop.backlog() for shop in self.shops.values()),
            SETTLED_S_MAX,
            what="nothing to wait",
        )
        self._break()

    def _agent(self, name: str, url: str, dsn: str) -> None:
        agent = AgentProcess(self.folder / name, url, dsn, name, agent_id=f"agent-of-{name}")
        self.agents[name] = self._stack.enter_context(agent)

    def _source(self) -> None:
        """An agent that reaches its PostgreSQL by a line of its own."""
        with self.database.connect() as app:
            app.execute("CREATE TABLE item (id integer PRIMARY KEY, name text)")
        words = ["publisher", "attach", self.database.dsn, "--table", "item", "--feed", "source-cut-off"]
        assert headrace(*words).returncode == 0
        line = self._stack.enter_context(Proxy("127.0.0.1", self.database.cluster.port))
        self.lines["source-cut-off"] = line
        dsn = f"postgresql://postgres@127.0.0.1:{line.port}/{self.database.name}"
        self.insert(1)
        self._agent("source-cut-off", self.server.url, dsn)

    def insert(self, number: int) -> None:
        """Commit a row at PostgreSQL's own side of the line."""
        with self.database.connect() as app:
            app.execute("INSERT INTO item VALUES (%s, 'on this side')", (number,))

    def _break(self) -> None:
        url = f"http://127.0.0.1:{self.lines['listener-cut-off'].port}"
        listener = ListenProcess(self.folder / "listener", "listener-cut-off", url, listener_id=LISTENER)
        self.listener = self._stack.enter_context(listener)
        wait_until(lambda: listener.last() == 2, SETTLED_S_MAX, what="the listener to have all")
        self.agents["crashed"].kill()
        for line in self.lines.values():
            line.cut()
        for name in ("crashed", "orders"):
            self.shops[name].write(1)
        self.insert(2)
        for name in ("listener-away", "listener-cut-off"):
            post(self.feed(name), 3, 4)
        self._refuse()
        assert self.feed("taken").register("another-agent", takeover=True).status_code == 200
        self.shops["taken"].write(1)
        again = {"changes": {"uuid": "object-2"}, "sequence-id": 2}
        assert self.feed("quarantined").post(again).status_code == 409

    def _refuse(self) -> None:
        with application(self.shops["refused"].path) as app:
            app.execute("PRAGMA busy_timeout = 60000").close()
            app.execute("INSERT INTO item VALUES (2, hex(zeroblob(?)))", (TOO_LARGE // 2,))
        agent = self.agents["refused"]
        wait_until(lambda: agent.ended() is not None, SETTLED_S_MAX, what="the agent to stop at the row")

    def feed(self, name: str) -> Feed:
        """A feed as its publisher sees it."""
        found = Feed(self.server, name)
        found.agent = f"agent-of-{name}"
        return found

    def head(self, feed: str) -> int:
        """The newest sequence id of a feed; 0 before there is one."""
        found = self.server.http.get(self.feed(feed).path)
        return int(found.json()["head-sequence-id"]) if found.status_code == 200 else 0

    @contextmanager
    def restarted(self, *args: str) -> Iterator[None]:
        """Within the body the server runs with these options too."""
        usual = self.server.args
        self._restart([*usual, *args])
        try:
            yield
        finally:
            self._restart(usual)

    def _restart(self, args: list[str]) -> None:
        assert self.server.stop() == 0
        self.server.args = args
        self.server.start()

    def trace(self, feed: str, *words: str) -> tuple[int, Any]:
        """The exit code and document of ``headrace trace --json``."""
        done = headrace("trace", feed, *words, "--json", "--server", self.server.url)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    def page(self, feed: str, *words: str) -> str:
        """The text of the console's page about the same."""
        asked = {"key": words[1]} if words[0] == "--key" else {"sequence-id": words[0]}
        answer = self.server.http.get(f"/console/feeds/{quote(feed, safe='')}/trace?{urlencode(asked)}")
        assert answer.status_code == 200, answer.text
        return html.unescape(answer.text)


def headrace(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does."""
    return forks.run(
        [*forks.HEADRACE, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def staged(folder: Path, database: Database) -> Iterator[Stage]:
    """Set the stage; every process ends with it."""
    with (
        serving(folder / "server", args=["--segment-size", "4k", "--gone-after", "15s"]) as server,
        ExitStack() as stack,
    ):
        stage = Stage(folder, server, database, stack)
        stage.set()
        yield stage
