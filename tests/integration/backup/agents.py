"""Archives made from a real server, for all tests that need one: agents as processes, and what an archive holds.

``backup(server, archive)`` archives what a server has, in this process; ``with backing_up(server, archive, folder=…)`` runs
an agent beside the test. ``entries_of(archive)`` reads all of it back and fails if anything is missing; ``logged(server)``
is the log itself. An archive is a path, or an address in S3; then processes need ``env=s3.env``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Range, check_gaps
from headrace.backup.agent import Agent
from headrace.backup.process import Outcome, run_backup
from headrace.backup.settings import BackupSettings
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError
from headrace.wire.batch import ReceivedBatch
from headrace.wire.entry import bare_message_of
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import Manifest
from tests import forks
from tests.servers import Feed, ServerProcess, changes
from tests.waiting import wait_until

WAIT_S_MAX = 60.0
STOP_S_MAX = 60.0


def command(server: ServerProcess, archive: Path | str, *words: str) -> list[str]:
    """The words of ``headrace wal backup``."""
    faces = ["--server", server.url, "--grpc", server.grpc_address]
    return [
        *forks.HEADRACE,
        "wal",
        "backup",
        "--pitr-dir",
        str(archive),
        *faces,
        *words,
    ]


def backup(server: ServerProcess, archive: Path | str, **settings: Any) -> Outcome:
    """Archive what the server has now; raises what ``headrace wal backup --once`` says. ``settings``: more of them."""
    told = BackupSettings(
        archive=str(archive), server=server.url, grpc=server.grpc_address, once=True, **settings
    )

    async def run() -> Outcome:
        return await run_backup(told, asyncio.Event())

    return asyncio.run(run())


def backup_command(
    server: ServerProcess,
    archive: Path | str,
    *words: str,
    code: int = 0,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Do the same by the command; returns the document that was printed, an error's if ``code`` is not 0."""
    done = forks.run(
        [*command(server, archive, *words), "--once", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


class AgentProcess:
    """An agent that runs; what it says goes to ``out`` and ``err`` of its folder."""

    def __init__(self, words: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("ab") as err:
            self.process = forks.start(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env)

    def said(self) -> str:
        """What it said on stderr, all lives in this folder together."""
        return self._err.read_text()

    def ended(self) -> bool:
        """Tell whether it has ended."""
        return self.process.poll() is not None

    def until(self, predicate: Callable[[], Any], what: str) -> None:
        """Wait until this holds; the agent must not end meanwhile."""

        def holds() -> bool:
            code = self.process.poll()
            assert code is None, f"the agent has ended ({code}) while {what} was waited for: {self.said()}"
            return bool(predicate())

        wait_until(holds, WAIT_S_MAX, what=what)

    def wait(self) -> Any:
        """Wait until it has ended by itself, and return its exit code and document."""
        code = self.process.wait(STOP_S_MAX)
        said = self._out.read_text()
        return code, json.loads(said) if said else None

    def stop(self) -> Any:
        """SIGTERM; return the document that it prints at its end."""
        self.process.send_signal(signal.SIGTERM)
        code, document = self.wait()
        assert code == 0, self.said()
        return document

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_S_MAX)


@contextmanager
def backing_up(
    server: ServerProcess,
    archive: Path | str,
    *words: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[AgentProcess]:
    """Run an agent for the length of a ``with``; it is killed at the end if it still runs. ``folder``: for what it says."""
    agent = AgentProcess([*command(server, archive, *words), "--json"], folder, env)
    try:
        yield agent
    finally:
        agent.kill()
    assert "Traceback" not in agent.said()


class AgentHere:
    """An agent that runs in a thread of this process, so that a test sees what it holds."""

    def __init__(self, server: ServerProcess, archive: Path | str, *, url: str = "") -> None:
        """``url``: of the server's HTTP face, if it is reached elsewhere."""
        self._settings = BackupSettings(
            archive=str(archive), server=url or server.url, grpc=server.grpc_address
        )
        self._agent: Agent | None = None
        self._stop: Callable[[], object] = lambda: None
        self.outcome: Outcome | HeadraceError | None = None
        """What came of it; None while it runs."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="agent here")

    def __enter__(self) -> AgentHere:
        self._thread.start()
        wait_until(lambda: self._agent is not None, WAIT_S_MAX, what="the agent to begin")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _run(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)

        async def watch(agent: Agent) -> None:
            self._agent = agent

        try:
            self.outcome = await run_backup(self._settings, stop, watch)
        except HeadraceError as error:
            self.outcome = error

    def wait_held(self, entries: int) -> None:
        """Wait until it holds so many entries that are not archived."""
        agent = self._agent
        assert agent is not None
        wait_until(
            lambda: agent.standing.gathered == entries, WAIT_S_MAX, what=f"{entries} entries to be held"
        )

    def wait_told(self, *feeds: str) -> None:
        """Wait until it was told of these feeds by the server, and of no others."""
        agent = self._agent
        assert agent is not None
        wait_until(
            lambda: {one.change_feed_id for one in agent.registry.known.values()} == set(feeds),
            WAIT_S_MAX,
            what=f"the server's word on {feeds}",
        )

    def stop(self) -> Outcome | HeadraceError | None:
        """Have it stop, as SIGTERM does; return what came of it."""
        if self.outcome is None:
            self._stop()
        self._thread.join(STOP_S_MAX)
        assert not self._thread.is_alive()
        return self.outcome


def registered(server: ServerProcess, *names: str) -> list[Feed]:
    """Feeds whose publishers are registered."""
    feeds = [Feed(server, name) for name in names]
    for feed in feeds:
        assert feed.register().status_code == 200
    return feeds


def post(feed: Feed, first: int, count: int) -> None:
    """Post ``count`` entries as one append."""
    answer = feed.post(*({"changes": changes(number)} for number in range(first, first + count)))
    assert answer.status_code == 200, answer.text


def logged(server: ServerProcess) -> list[bytes]:
    """All entries of a server's log, as they are stored, in LSN order."""
    return asyncio.run(logged_by(server.grpc_address))


async def logged_by(address: str) -> list[bytes]:
    """Do the same in a test that has an event loop."""
    found: list[bytes] = []
    async with asyncio.timeout(WAIT_S_MAX), WalClient(address, subscriber_id="reader") as wal:
        head, oldest = await wal.bounds()
        if head == ZERO:
            return found
        async with aclosing(wal.subscribe(oldest)) as items:
            async for item in items:
                if isinstance(item, ReceivedBatch):
                    found += map(bytes, item.entries())
                    if item.last_lsn >= head:
                        break
    return [_bare(entry) for entry in found]


def _bare(entry: bytes) -> bytes:
    """An ``entries`` field without its tag and size."""
    at = 1
    while entry[at] >= 0x80:
        at += 1
    return entry[at + 1 :]


def manifests_of(archive: Path | str, identity: str = "") -> list[Manifest]:
    """The manifests of an archive, in LSN order; each segment must have one."""
    folder = Folder(str(archive), identity)
    segments = folder.segments(needed=False)
    found = folder.manifests(segments)
    return [found[one.file] for one in segments]


def entries_of(archive: Path | str, identity: str = "", *, gaps: bool = False) -> list[bytes]:
    """Every entry of an archive, in LSN order, after all was checked that can be: files, manifests, joints, sequence ids.

    ``gaps``: some may be missing between segments.
    """
    folder = Folder(str(archive), identity)
    segments = folder.segments(needed=False)
    manifests = folder.manifests(segments)
    assert len(manifests) == len(segments), "a segment has no manifest"
    if not gaps:
        check_gaps(segments, None, Range(), manifests)
        _check_ids([manifests[one.file] for one in segments])
    found: list[bytes] = []
    for one in segments:
        segment = Segment(
            folder.read_segment(one.file), where=one.file, name=one.name, manifest=manifests[one.file]
        )
        assert sum(batch.num_rows for batch in segment.batches()) == len(segment)
        found += map(bytes, segment.entries())
    return found


def _check_ids(manifests: list[Manifest]) -> None:
    ranges = [one for manifest in manifests for one in manifest.feeds]
    for region in {one.region_id for one in ranges}:
        for before, after in pairwise(one for one in ranges if one.region_id == region):
            if before.incarnation == after.incarnation:
                assert after.first_sequence_id == before.last_sequence_id + 1


def lsns_of(entries: list[bytes]) -> list[Lsn]:
    """Their LSNs."""
    return [Lsn.parse(bare_message_of(memoryview(entry)).lsn) for entry in entries]


def archived(archive: Path | str) -> int:
    """How many entries the archive holds now, by its manifests; an agent may be writing to it."""
    folder = Folder(str(archive))
    if folder.local is not None and not folder.local.is_dir():
        return 0
    segments = [one for one in folder.segments(needed=False) if one.told]
    return sum(manifest.entries for manifest in folder.manifests(segments).values())
