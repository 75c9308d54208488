"""Backup agents that sleep between any two steps on an object store while others take over: nothing acked is ever lost.

The agents are the product's own, in threads of which one runs at a time; only the lease is a number. A step is one call of
the store, so a put may arrive however long after the look at the lease that allowed it.
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.archive.files.folder import Folder
from headrace.archive.files.settling import SegmentFiles
from headrace.archive.files.writing import put_new
from headrace.archive.moments.catalogue import Archive
from headrace.archive.rights.owner import Owner
from headrace.backup import deposits as module
from headrace.backup.deposits import Deposits, Given, surveyed
from headrace.backup.gathering import Gatherer
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import ArchiveConflict, ArchiveOwned, ArchiveUnavailable, HeadraceError
from headrace.wire.batch import ReceivedBatch
from headrace.wire.kwal_columns import Segment
from tests.archive_model import Append, History
from tests.identities import age_identity
from tests.kwal import INCARNATION
from tests.scale import scaled, sized

LOG: Final = History([Append(7, at) for at in range(8)])
LSNS: Final = [one.lsn for one in LOG.entries]
numbers = count(1)
_steps = threading.local()


class Stepped(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """A store in memory each of whose calls waits until it is the turn of who makes it."""

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        _step()
        super().pipe_file(path, value, **more)

    def rm_file(self, path: str) -> None:
        _step()
        super().rm_file(path)

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        _step()
        return super().ls(path, detail, **more)


def _step() -> None:
    if (turn := getattr(_steps, "turn", None)) is not None:
        turn()


class Lot(NamedTuple):
    """What the agents do: whose turn it is, and for how many calls; how many appends each takes into a segment."""

    turns: list[tuple[int, int]]
    cuts: list[int]


@dataclass
class World:
    """An archive, who owns it, and how far the server was told that it is archived."""

    url: str
    recipients: tuple[str, ...] = ()
    epoch: int = 0
    acked: Lsn = ZERO
    failures: list[HeadraceError] = field(default_factory=list)

    def take(self, _: Folder) -> Owner:
        """Take the archive over, as if the lease of who had it had run out."""
        self.epoch += 1
        return Owner(_Claim(self, self.epoch))


class _Claim(NamedTuple):
    world: World
    epoch: int

    def check(self) -> None:
        if self.world.epoch != self.epoch:
            raise ArchiveOwned("another process has it")

    def release(self) -> None:
        pass


class Agent:
    """One agent: archives from where the archive ends, in segments of ``cut`` appends, until nothing is left."""

    def __init__(self, world: World, cut: int) -> None:
        self._world, self._cut = world, cut
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._stands.acquire()

    def step(self) -> None:
        """Let it make one more call of the store."""
        if not self.is_done:
            self._go.release()
            self._stands.acquire()

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.is_done:
            self.step()
        self._thread.join()

    def _turn(self) -> None:
        self._stands.release()
        self._go.acquire()

    def _run(self) -> None:
        _steps.turn = self._turn
        self._turn()
        epoch = self._world.epoch + 1
        try:
            self._archive()
        except HeadraceError as error:
            if self._world.epoch == epoch or not isinstance(
                error, (ArchiveOwned, ArchiveConflict, ArchiveUnavailable)
            ):
                self._world.failures.append(error)
        finally:
            self.is_done = True
            self._stands.release()

    def _archive(self) -> None:
        with Deposits.open(self._world.url, self._world.recipients) as deposits:
            while (at := LSNS.index(deposits.end) + 1 if deposits.end else 0) < len(LSNS):
                deposits.put(files_of(deposits, at, self._cut))
                assert deposits.end is not None
                self._world.acked = max(self._world.acked, deposits.end)


def files_of(deposits: Deposits, at: int, cut: int) -> SegmentFiles:
    """What an agent puts of the log from the append ``at`` on."""
    gatherer = Gatherer(1 << 20)
    for body, sizes, first, last in LOG.appends[at : at + cut]:
        batch = ReceivedBatch(first, last, 0, 0, {}, memoryview(body), array("I", sizes))
        assert not list(gatherer.add(batch))
    finished = gatherer.seal()
    walked_from = None if at else ZERO
    return deposits.files_of(
        finished, surveyed(finished, deposits.histories), Given({7: INCARNATION}, {}, walked_from)
    )


def check(world: World, identity: str) -> Lsn:
    """The archive can be read, and has all that was acked, once; return how far it reaches without a gap."""
    if not any(file.startswith("kdb-wal-") and ".bin" in file for file in Folder(world.url).files()):
        assert world.acked == ZERO
        return ZERO
    archive = Archive.read(world.url, identity)
    reach = archive.chain.reach(ZERO)
    assert reach >= world.acked
    # No agent had to guess what a segment is of.
    assert {feed.incarnation for one in archive.manifests.values() for feed in one.feeds} <= {INCARNATION}
    at = 0
    for one in archive.segments:
        if one.name.last <= reach:
            data = archive.folder.read_segment(one.file)
            assert one.name.first == LSNS[at]
            at += len(Segment(data, where=one.file, name=one.name, manifest=archive.manifests[one.file]))
            assert one.name.last == LSNS[at - 1]
    assert (LSNS[at - 1] if at else ZERO) == reach
    return reach


def play(lot: Lot, world: World, identity: str) -> None:
    """Let the agents take turns, then one archive the rest, then all the others wake up, each in its turn."""
    put_new(Folder(world.url), "readme.txt", [b"an object store has no empty folders"])
    agents: list[Agent] = []

    def begun() -> Agent:
        agents.append(Agent(world, lot.cuts[len(agents)]))
        return agents[-1]

    def opened(url: str) -> Folder:
        folder = Folder(url)
        folder.store = Stepped(skip_instance_cache=True)
        return folder

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "take", world.take)
        patched.setattr(module, "Folder", opened)
        for turn, calls in lot.turns:
            agent = agents[turn] if turn < len(agents) else begun()
            for _ in range(calls):
                agent.step()
        check(world, identity)
        begun().finish()
        assert check(world, identity) == LSNS[-1]
        for one in [one for one in agents if not one.is_done]:
            one.finish()
            assert check(world, identity) == LSNS[-1]
        begun().finish()
    assert world.failures == []
    assert check(world, identity) == LSNS[-1]


AGENTS_MAX: Final = 4
lots = st.builds(
    Lot,
    st.lists(st.tuples(st.integers(0, AGENTS_MAX - 1), st.integers(1, 12)), min_size=2, max_size=8),
    st.lists(st.sampled_from([2, 3, 5]), min_size=AGENTS_MAX + 2, max_size=AGENTS_MAX + 2),
)


@settings(max_examples=sized(scaled(20), soak=scaled(40)), deadline=None)
@given(lots)
def test_whoever_wakes_up_when_nothing_that_was_acked_is_lost(lot: Lot) -> None:
    play(lot, World(f"memory://late-{next(numbers)}/wal"), "")


@settings(max_examples=scaled(20), deadline=None)
@given(lots)
def test_the_same_with_segments_that_only_others_can_read(identity: tuple[str, str], lot: Lot) -> None:
    path, recipient = identity
    play(lot, World(f"memory://late-{next(numbers)}/wal", (recipient,)), path)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The file of an age identity, and its recipient."""
    path = tmp_path_factory.mktemp("age") / "key"
    return str(path), age_identity(path)
