"""The demo itself: starts every part as its own process, kills two of them in the middle, and waits for the end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from headrace.cli.demo import application
from headrace.cli.demo.processes import Child, headrace
from headrace.cli.demo.rows import source_rows, steps
from headrace.cli.demo.verdict import Count, Key, Row, compare, fold
from headrace.client.http import FeedClient
from headrace.errors import DemoFailed, HeadraceError
from headrace.listener import Change, Listener, SqliteBookmarks
from headrace.wire.documents import EntryOut

FEED: Final = "demo"
SETTLE_S_MAX: Final = 120.0
"""After the last commit everything must have arrived within this time, on a busy machine too."""
RANGE_ENTRIES: Final = 5_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: ``seconds`` of transactions at ``per_second``, in ``folder``; ``seed`` repeats a run.

    ``archived``: back everything up too.
    """

    folder: Path
    seconds: float = 20.0
    per_second: float = 120.0
    seed: int = 1
    archived: bool = False

    @property
    def archive(self) -> Path:
        """The folder of the backup."""
        return self.folder / "archive"


class Moment(NamedTuple):
    """The moment before a mistake: the last entry before it, and how many of the rows that stood then are others now."""

    lsn: str
    sequence_id: int
    spoilt: int


@dataclass(slots=True)
class Ran:
    """What came out of the core: the source's rows, counts by reader and table, and delays from commit to listener.

    ``delays_ms`` has every commit, ``undisturbed_ms`` those made and received before the first kill.
    """

    server: str
    source: dict[Key, Row]
    counts: list[Count]
    commits: int
    entries: int
    delays_ms: list[float] = field(default_factory=list)
    undisturbed_ms: list[float] = field(default_factory=list)

    @property
    def faultless(self) -> bool:
        """True if nothing is missing, doubled, out of order or torn."""
        return all(count.faultless for count in self.counts)


class Demo:
    """The parts of one run. Everything is started here and stopped by :meth:`close`."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        """``tell`` is given one line for each step."""
        self.plan = plan
        self.tell = tell
        self.database = plan.folder / "app.db"
        self.commits = plan.folder / "commits.txt"
        dsn = {"HEADRACE_DSN": f"sqlite:///{self.database.resolve()}"}
        self._dsn = dsn
        config = plan.folder / "agent.toml"
        self.agent = Child("agent", plan.folder, headrace("agent", "run", "--config", str(config)), dsn)
        self.server: Child | None = None
        self.backup: Child | None = None
        self.url = ""
        self.grpc = "127.0.0.1:0" if plan.archived else "off"
        self.received: list[EntryOut] = []
        self.arrived_ns: dict[int, int] = {}
        self.killed_ns = 0

    async def run(self, after_core: Callable[[Ran], Awaitable[None]]) -> Ran:
        """Run it all; ``after_core`` is given the core's result while the server still runs.

        DemoFailed if a part does not do its part.
        """
        plan = self.plan
        application.create(self.database)
        self.tell("an application's SQLite database with three tables, with rows in them")
        async with AsyncExitStack() as stack:
            await self._start_server("127.0.0.1:0", stack)
            self.tell(f"server at {self.url}")
            await self._attach()
            self.tell(
                f"attached {', '.join(application.TABLES)} to the feed {FEED!r}; the application is not touched"
            )
            config = f'agent-id = "demo-agent"\nserver = "{self.url}"\nfeeds = ["{FEED}"]\n'
            (plan.folder / "agent.toml").write_text(config, encoding="utf-8")
            if plan.archived:
                await self._back_up(stack)
            stack.push_async_callback(self.agent.stop)
            await self.agent.start()
            client = await stack.enter_async_context(FeedClient(self.url))
            await self._until(lambda: self._has_entries(client), "the agent to make the feed")
            bookmarks = SqliteBookmarks(plan.folder / "listener.db")
            listener = await stack.enter_async_context(Listener(self.url, FEED, "demo-listener", bookmarks))
            following = asyncio.create_task(self._follow(listener))
            stack.callback(following.cancel)
            await self._work(stack)
            await self._until(lambda: self._settled(client), "everything to arrive")
            ran = await self._judge(client)
            await after_core(ran)
            return ran

    async def _start_server(self, address: str, stack: AsyncExitStack | None = None) -> None:
        words = headrace(
            "serve",
            "--json",
            "--http",
            address,
            "--grpc",
            self.grpc,
            "--data-dir",
            str(self.plan.folder / "data"),
        )
        self.server = Child("server", self.plan.folder, words, {})
        if stack is not None:
            stack.push_async_callback(self._stop_server)
        await self.server.start()
        said = await self.server.first_document()
        self.url, self.grpc = f"http://{said['http']}", said.get("grpc") or self.grpc

    async def _stop_server(self) -> None:
        if self.server is not None:
            await self.server.stop()

    async def _attach(self) -> None:
        words = headrace("publisher", "attach", "--feed", FEED, "--json")
        for table in application.TABLES:
            words += ["--table", table]
        attach = Child("attach", self.plan.folder, words, self._dsn)
        await attach.start()
        await attach.finish()

    async def _back_up(self, stack: AsyncExitStack) -> None:
        words = ["--pitr-dir", str(self.plan.archive), "--server", self.url, "--grpc", self.grpc]
        self.backup = Child("backup", self.plan.folder, headrace("wal", "backup", *words), {})
        stack.push_async_callback(self.backup.stop)
        await self.backup.start()
        self.tell("a backup archives every entry")

    async def spoil(self, ran: Ran) -> Moment:
        """Let the application make its mistake and go on, archive all of it, and return the moment before.

        That is where everything stood when ``ran`` was judged. DemoFailed if a part does not do its part.
        """
        before = self.received[-1]
        application.spoil(self.database)
        await self._until(self._has_gone_on, "the mistake to arrive")
        if self.backup is not None:
            await self.backup.end()
        now = source_rows(self.database)
        spoilt = sum(now.get(key) != row for key, row in ran.source.items())
        if not spoilt:
            raise DemoFailed("the mistake changed no row, so there is nothing to restore")
        return Moment(before.lsn, before.sequence_id, spoilt)

    async def _has_gone_on(self) -> bool:
        return self.received[-1].key == f'["main","notes","{application.AFTERWARDS}"]'

    async def _work(self, stack: AsyncExitStack) -> None:
        """Run the application; a third of the way SIGKILL the agent, at two thirds the server; start each again."""
        plan = self.plan
        words = ["-m", "headrace.cli.demo.application", str(self.database), str(self.commits)]
        words += [str(plan.seconds), str(plan.per_second), str(plan.seed)]
        worker = Child("application", plan.folder, words, {})
        stack.push_async_callback(worker.stop)
        await worker.start()
        self.tell(
            f"the application runs {plan.per_second:g} transactions/s for {plan.seconds:g} s; one in ten rolls back"
        )
        await asyncio.sleep(plan.seconds / 3)
        self.killed_ns = time.time_ns()
        await self.agent.kill()
        self.tell(f"{len(self.received)} entries in; SIGKILL to the agent")
        await asyncio.sleep(min(1.0, plan.seconds / 10))
        await self.agent.start()
        await asyncio.sleep(plan.seconds / 3)
        if self.server is not None:
            await self.server.kill()
        self.tell(f"{len(self.received)} entries in; SIGKILL to the server")
        await asyncio.sleep(min(1.0, plan.seconds / 10))
        await self._start_server(self.url.removeprefix("http://"))
        self.tell("agent and server run again; the application goes on")
        await worker.finish()
        self.agent.check()

    async def _follow(self, listener: Listener) -> None:
        async for change in listener:
            self._receive(change)

    def _receive(self, change: Change) -> None:
        self.received.append(change.entry)
        if change.entry.table == ["main", "transfers"] and not change.is_control and change.key:
            self.arrived_ns.setdefault(json.loads(change.key)[-1], time.time_ns())

    async def _has_entries(self, client: FeedClient) -> bool:
        try:
            return (await client.feed(FEED)).head_sequence_id > 0
        except HeadraceError:
            return False

    async def _settled(self, client: FeedClient) -> bool:
        """The last commit has reached the listener, and the listener is at the head."""
        last = max(self._committed(), default=0)
        head = (await client.feed(FEED)).head_sequence_id
        seen = self.received[-1].sequence_id if self.received else 0
        return seen == head and (last == 0 or last in self.arrived_ns)

    async def _until(self, reached: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + SETTLE_S_MAX
        while not await reached():
            if asyncio.get_running_loop().time() > deadline:
                raise DemoFailed(f"waited {SETTLE_S_MAX:g} s for {what}; see the logs in {self.plan.folder}")
            await asyncio.sleep(0.05)

    def _committed(self) -> dict[int, int]:
        if not self.commits.exists():
            return {}
        lines = self.commits.read_text(encoding="ascii").splitlines()
        return {int(transfer): int(at_ns) for transfer, at_ns in map(str.split, lines)}

    async def _judge(self, client: FeedClient) -> Ran:
        source = source_rows(self.database)
        feed = await self._read_all(client)
        counts: list[Count] = []
        for reader, entries in (("feed", feed), ("listener", self.received)):
            counts += compare(source, fold(reader, application.TABLES, steps(entries), application.TOTAL))
        commits = self._committed()
        found = Ran(self.url, source, counts, len(commits), len(feed))
        for transfer, at_ns in commits.items():
            arrived_ns = self.arrived_ns[transfer]
            found.delays_ms.append((arrived_ns - at_ns) / 1e6)
            if arrived_ns < self.killed_ns:
                found.undisturbed_ms.append((arrived_ns - at_ns) / 1e6)
        return found

    async def _read_all(self, client: FeedClient) -> Sequence[EntryOut]:
        found: list[EntryOut] = []
        while True:
            page = await client.read(FEED, len(found) + 1, limit=RANGE_ENTRIES)
            found += page.changes_list
            if not page.changes_list or found[-1].sequence_id >= page.head_sequence_id:
                return found
