"""A journal at rest is damaged, looked at and repaired, with crashes in between; what the world loses by it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, JournalLoss, SequenceLost
from headrace.log.damage import COSTS_NOTHING
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode
from headrace.log.files.repair import Repair
from headrace.log.files.store import FileStore
from headrace.log.tail import FeedTail
from headrace.server.streams.walking import find_start, read_on
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, Step
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from headrace.wire.entry import digest
from headrace.wire.frame import HEADER_SIZE, FrameHeader, FrameKind
from headrace.wire.mark import SLOT_SIZE
from tests.append_model import Feed
from tests.bench import half, stored_entries
from tests.fault.simulated import World, shape_in, shape_of
from tests.fault.simulated_contents import Contents

FOLDER: Final = Path("/machine/data")
HURTS: Final = ("payload", "payload", "both headers", "first header", "second header")
COSTS_FRAME: Final = {"payload", "both headers"}


class Mending:
    """One damage and its repair: :meth:`damage`, :meth:`repaired`, then :meth:`world_after`."""

    def __init__(
        self,
        rng: random.Random,
        disk: MemoryDisk,
        clock: ManualClock,
        contents: Contents,
        say: Callable[[str], None],
    ) -> None:
        self.rng, self.disk, self.clock, self.contents, self.say = rng, disk, clock, contents, say
        self.mode = rng.choice((Mode.SKIP, Mode.CUT))
        self.frames: list[FrameHeader] = []
        self.gone: list[FrameHeader] = []
        self.is_holed = self.is_mended = self.has_cost = False
        self.world = World()
        self.regions: dict[str, int] = {}

    # -- damage -------------------------------------------------------------------------------------------------------

    def damage(self, store: FileStore, world: World) -> None:
        """Stop or kill the server and flip bits of some frames, and of the mark. Readers are told, and get all the rest."""
        self._begin(store, world)
        self.frames, self.is_mended = _frames(store)
        if self.rng.random() < 0.5:
            store.close()
        else:
            self.disk = self.disk.crash(Crash.KILL)
        victims = self.rng.sample(self.frames, min(len(self.frames), self.rng.choice((0, 1, 1, 1, 2))))
        for victim in victims:
            self._hurt(victim, self.rng.choice(HURTS))
        if not victims or self.rng.random() < 0.3:
            self._hurt_what_is_doubled()
        self._dry_run()
        self._look()

    def leave_to_decide(self, store: FileStore, world: World) -> None:
        """Close a journal that a crash left in ``world``, with an end of which nobody knows whether it was acknowledged."""
        self._begin(store, world)
        self.mode, self.is_holed = Mode.CUT, True
        store.close()
        self._dry_run()

    def _begin(self, store: FileStore, world: World) -> None:
        self.world, self.regions = world, {tail.name: tail.region_id for tail in store.tails()}
        self.disk.watch = None

    def _hurt(self, victim: FrameHeader, what: str) -> None:
        self.say(f"damage: {what} of {FrameKind(victim.kind).name} at {victim.position:#x}")
        ends = {
            "payload": [victim.position + HEADER_SIZE],
            "first header": [victim.position],
            "second header": [victim.end - HEADER_SIZE],
            "both headers": [victim.position, victim.end - HEADER_SIZE],
        }
        size = victim.payload_size if what == "payload" else HEADER_SIZE
        for begin in ends[what]:
            self._flip(begin + self.rng.randrange(size))
        if what in COSTS_FRAME:
            self.gone.append(victim)
            self.is_holed = self.is_holed or what == "both headers"

    def _hurt_what_is_doubled(self) -> None:
        """A copy of the mark, or the index of a sealed segment, which can be made again."""
        paths = self.disk.list(FOLDER / "journal", ".seg")
        sealed = self.rng.randrange(len(paths)) + 1
        if sealed == len(paths):
            self.say("damage: mark")
            self.disk.flip(FOLDER / "mark", self.rng.randrange(2 * SLOT_SIZE), 0x41)
            return
        path, data = paths[sealed - 1], self.disk.bytes_of(paths[sealed - 1])
        frames = int(paths[sealed].stem, 16) - int(path.stem, 16)
        begin = 32 + int.from_bytes(data[16:20], "little") + frames
        self.say(f"damage: index of {path.name}")
        self.disk.flip(path, self.rng.randrange(begin, len(data)), 0x41)

    def _flip(self, position: int) -> None:
        paths = self.disk.list(FOLDER / "journal", ".seg")
        path = max(path for path in paths if int(path.stem, 16) <= position)
        start = 32 + int.from_bytes(self.disk.bytes_of(path)[16:20], "little")
        self.disk.flip(path, start + position - int(path.stem, 16), 1 << self.rng.randrange(8))

    def _dry_run(self) -> None:
        """Planning a repair changes no byte."""
        before = self.disk.contents()
        with closing(self._opened()) as repair, closing(repair.examine()) as findings:
            repair.plan(findings, self.mode)
        assert self.disk.contents() == before, "a dry run changed something"

    def _look(self) -> None:
        """Open the damaged journal for its readers: each entry is what it was or an error; only hurt frames are errors."""
        if self.rng.random() < 0.5:
            return
        hurt = {self._key(frame, at) for frame in self.gone for at in range(frame.count)}
        try:
            store = FileStore(FOLDER, disk=self.disk, segment_bytes=1 << 20)
        except (JournalCorrupt, JournalLoss):
            assert not self.gone, "a damaged frame kept all others from being served"
            return  # the mark: its other copy has never been written, or is older than the newest segment
        with closing(store):
            _walk_on(store)
            # Where damage below the mark blocks the writer, what stands above a mark that may be too low is not looked at.
            is_blocked = store.not_writable() is not None
            is_doubtful = any(
                "may have been acknowledged" in alarm or (is_blocked and "the copy of the mark" in alarm)
                for alarm in store.alarms
            )
            for name, feed in self.world.feeds.items():
                tail = store.tail(name)
                if tail is None or tail.region_id != self.regions[name]:
                    assert is_doubtful or any(frame.kind == FrameKind.CONTROL for frame in self.gone), (
                        f"{name} vanished"
                    )
                    continue
                for number in range(max(tail.oldest, feed.dropped + 1), tail.next_sequence_id):
                    if number not in feed.lost:
                        is_hurt = (tail.region_id, number) in hurt
                        self._read_one(store, tail, number, feed, is_hurt=is_hurt)

    @staticmethod
    def _key(frame: FrameHeader, at: int) -> tuple[int, int]:
        return frame.region_id, frame.first_sequence_id + at

    @staticmethod
    def _read_one(store: FileStore, tail: FeedTail, number: int, feed: Feed, *, is_hurt: bool) -> None:
        try:
            (found,) = stored_entries(store, tail, number, number)
        except JournalCorrupt:
            assert is_hurt, f"{tail.name} {number} is intact and can't be read"
        else:
            assert (found.producer, found.half) == feed.entries[number - feed.begin], "damage was served"

    # -- repair -------------------------------------------------------------------------------------------------------

    def repaired(self) -> MemoryDisk:
        """Repair, again after each crash, until nothing is damaged; returns the disk.

        (A cut leaves what costs nothing, such as a copy of a header, to the next repair.)
        """
        for _ in range(50):
            self.disk.crash_at, self.disk.faults = None, []
            if self.rng.random() < 0.5:
                self.disk.crash_at = self.disk.steps + self.rng.randrange(40)
            if self.rng.random() < 0.3:
                self.disk.faults.append(Fault(Step.SYNC, after=self.rng.randrange(8)))
            try:
                self._repair_once()
            except OSError as error:
                self.say(f"a repair failed: {error}")
                self.is_mended = True  # the next one goes over what this one may have skipped
                continue
            except PowerCut:
                kind = self.rng.choice(list(Crash))
                self.say(f"crashed in a repair: {kind}")
                self.disk = self.disk.crash(kind)
                self.is_mended = True
                continue
            self.disk.crash_at, self.disk.faults = None, []
            if self.rng.random() < 0.5:
                self.disk = self.disk.crash(Crash.POWER)
            with closing(examine(FOLDER, disk=self.disk)) as findings:
                if not findings.damages:
                    return self.disk
                left = [damage for damage in findings.damages if damage.kind not in COSTS_NOTHING]
                assert not left, left
        raise AssertionError("the damage can't be repaired")

    def _repair_once(self) -> None:
        self.clock.ms += 1000  # a person asks for it
        with closing(self._opened()) as repair, closing(repair.examine()) as findings:
            plan = repair.plan(findings, self.mode)
            self.say(f"repair {self.mode}: lost {plan.lost}, new incarnations {plan.recreated}")
            self.has_cost = self.has_cost or bool(plan.lost) or bool(plan.recreated)
            repair.apply(plan)

    def _opened(self) -> Repair:
        return Repair(FOLDER, disk=self.disk, clock=self.clock)

    @property
    def is_cut(self) -> bool:
        """Whether the journal was cut."""
        return self.mode == Mode.CUT and bool(self.gone)

    # -- what the world is now ----------------------------------------------------------------------------------------

    def begin_at(self, store: FileStore, possible: Sequence[World]) -> None:
        """Of the worlds that a crash may have left, in the order of their appends: it was the first that covers ``store``.

        What was not answered, and stands whole in front of what a repair cut, may be there from then on.
        """
        tails = {tail.name: tail for tail in store.tails()}
        self.regions |= {
            tail.name: tail.region_id for tail in tails.values() if tail.name not in self.regions
        }
        for world in possible:
            if all(
                name in world.feeds and tail.next_sequence_id <= world.feeds[name].next
                for name, tail in tails.items()
            ):
                self.world = world
                return

    def world_after(self, store: FileStore) -> World:
        """Return the world behind the repair, once it is found that only what had to go is gone, and readers find out."""
        if self.is_cut:
            begin = min(frame.position for frame in self.gone)
            self.gone = [frame for frame in self.frames if frame.position >= begin]
        feeds: dict[str, Feed] = {}
        for name, feed in self.world.feeds.items():
            tail = store.tail(name)
            ids = {
                number
                for frame in self.gone
                if frame.region_id == self.regions[name]
                for number in range(frame.first_sequence_id, frame.last_sequence_id + 1)
            }
            if tail is None:
                assert self._untold(name), f"{name} vanished"
                assert not any(number not in ids for number in self._retained(feed)), f"{name} vanished"
                self.contents.forget(name, 0)
            else:
                feeds[name] = self._feed_after(name, feed.clone(), tail, ids)
        for tail in store.tails():
            if tail.name not in self.world.feeds:  # made in what is gone, and told of behind that
                assert self.is_holed, f"{tail.name} came from nowhere"
                assert not tail.first_sequence_id, f"{tail.name} came from nowhere"
                self.regions[tail.name] = tail.region_id
                fresh = Feed(tail.shared, begin=tail.next_sequence_id)
                feeds[tail.name] = self._feed_after(tail.name, fresh, tail, set())
        return replace(self.world, feeds=feeds)

    @staticmethod
    def _retained(feed: Feed) -> range:
        return range(max(feed.begin, feed.dropped + 1), feed.next)

    def _untold(self, name: str) -> bool:
        """May what happened to this feed's state be unknown: was a control frame of it hurt, or any frame whole?"""
        hurt = any(
            frame.kind == FrameKind.CONTROL and frame.region_id == self.regions[name] for frame in self.gone
        )
        return self.is_holed or (hurt and bool(self.gone))

    def _feed_after(self, name: str, feed: Feed, tail: FeedTail, ids: set[int]) -> Feed:
        # Over what an earlier repair skipped, a repair takes feeds for changed that are not: they get new epochs.
        if not self._untold(name) and not ids and not self.is_mended:
            feed.dropped = tail.dropped_sequence_id
            assert shape_in(tail) == shape_of(feed), f"{name} lost nothing and changed"
            return feed
        if ids:
            assert tail.incarnation != feed.incarnation, f"{name} lost entries and nobody finds out"
        self._check_authority(feed, tail)
        self._take_entries(name, feed, tail, ids)
        if not self._untold(name):
            assert set(tail.quarantines) == feed.quarantined
            assert tail.settings.expected_offset == feed.terms
        feed.quarantined, feed.terms = set(tail.quarantines), tail.settings.expected_offset
        feed.shared, feed.owner, feed.epoch = tail.shared, tail.owner, tail.epoch
        feed.epochs, feed.incarnation = dict(tail.agents), tail.incarnation
        feed.instances = dict(tail.instances) if tail.shared else {tail.owner: tail.instance}
        feed.last = {}
        for agent, place in tail.producers.items():
            at = place.first_sequence_id - feed.begin
            stood = feed.entries[at : at + place.count]
            halves = [half for _, half in stood]
            assert digest(halves).hex() == place.digest, f"{name}: {agent} never sent that at {place}"
            feed.last[agent] = (place.first_sequence_id, halves)
        return feed

    def _check_authority(self, feed: Feed, tail: FeedTail) -> None:
        """Whoever was fenced stays fenced, whatever can't be read any more."""
        if not feed.shared and not tail.shared:
            assert tail.epoch >= feed.epoch, "an epoch came back"
            same = (tail.owner, tail.instance) == (feed.owner, feed.instances.get(feed.owner, ""))
            assert same or tail.epoch > feed.epoch, "an older owner came back"
        elif tail.shared and not self._untold(tail.name):
            for agent, epoch in tail.agents.items():
                assert epoch >= feed.epochs.get(agent, 0), f"an epoch of {agent} came back"
        else:
            assert self._untold(tail.name), "the feed is of another kind"

    def _take_entries(self, name: str, feed: Feed, tail: FeedTail, ids: set[int]) -> None:
        kept = [number for number in self._retained(feed) if number not in ids and number not in feed.lost]
        if self.is_cut:
            cut = min([*ids, feed.next])
            between = set(range(max(tail.next_sequence_id, feed.begin), cut))
            assert tail.next_sequence_id <= cut, f"{name} was cut elsewhere"
            assert between <= feed.lost, f"{name} was cut elsewhere"
        else:
            behind = max(kept, default=feed.dropped) + 1
            least = behind if self.is_holed else feed.next
            assert least <= tail.next_sequence_id <= feed.next, f"{name} ends at {tail.next_sequence_id}"
        del feed.entries[tail.next_sequence_id - feed.begin :]
        if not tail.first_sequence_id:
            feed.entries, feed.begin = [], tail.next_sequence_id
        elif tail.first_sequence_id < feed.begin:  # nobody knows what stood in a hole before its first entry
            assert self.is_holed, f"{name} begins at {tail.first_sequence_id}"
            before = range(tail.first_sequence_id, feed.begin)
            feed.entries, feed.begin = (
                [("nobody", half("unknown"))] * len(before) + feed.entries,
                before.start,
            )
            ids = ids | set(before)
        feed.lost = {number for number in feed.lost | ids if number < tail.next_sequence_id}
        feed.dropped = tail.dropped_sequence_id
        self.contents.forget(name, tail.next_sequence_id)


def _walk_on(store: FileStore) -> None:
    """A stream over all feeds that goes on where each error says must come to the end."""
    start = find_start(store, None)
    while True:
        try:
            frames = read_on(store, start.position, start.walked)
        except (JournalCorrupt, SequenceLost) as damage:
            resume = damage.members.get("resume-lsn")
            if resume is None:
                return
            behind = find_start(store, Lsn.parse(resume))
            assert behind.position > start.position, f"{resume} leads back to the damage"
            start = behind
            continue
        if not frames:
            return
        start = start._replace(position=frames[-1].header.end)


def _frames(store: FileStore) -> tuple[list[FrameHeader], bool]:
    """The headers of all frames that no repair has skipped, in journal order; and whether there is one that it has."""
    found: list[FrameHeader] = []
    position, is_mended = store.oldest_position(), False
    while position < store.end():
        try:
            frames = store.walk(position, bytes_max=1 << 20)
        except SequenceLost as lost:
            position, is_mended = lost.members["resume-position"], True
            continue
        headers = [frame.header for frame in frames]
        found += [header for header in headers if header.kind != FrameKind.SKIPPED]
        is_mended = is_mended or any(header.kind == FrameKind.SKIPPED for header in headers)
        position = headers[-1].end
    return found, is_mended
