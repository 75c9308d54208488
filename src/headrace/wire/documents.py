"""The JSON documents of the change feed API (RFD 5, hyphenated names), shared by server and client.

Unknown members are refused on the way in. ``changes`` and ``before`` are passed through byte for byte.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from headrace.wire.lost_lsns import LostLsns

FRAMES_TYPE: Final = "application/x-headrace-frames"
"""Media type of stored frames as they are: what Spark and our own clients read."""
TIME_MS_MAX: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000)
"""Latest time that is taken, in UTC milliseconds: RFC 3339 has no year beyond 9999."""

U64 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
SequenceId = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
ExpectedOffset = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
OpName = Literal["put", "patch", "delete"]
ChangesTerms = Literal["full", "delta"]
OffsetTerms = Literal["optional", "required", "ignored"]
Name = Annotated[str, Meta(min_length=1)]
_AS_IT_IS: Final = "Passed through byte for byte."
JsonObject = Annotated[Raw, Meta(description=_AS_IT_IS, extra_json_schema={"type": "object"})]
JsonValue = Annotated[Raw, Meta(description=_AS_IT_IS)]


class Document(msgspec.Struct, rename="kebab", kw_only=True, forbid_unknown_fields=True):
    """A request's document: hyphenated names, unknown members refused."""


class Answer(msgspec.Struct, rename="kebab", kw_only=True, omit_defaults=False):
    """A response's document: hyphenated names; readers pass over members they don't know."""


class EntryIn(Document, omit_defaults=True):
    """An entry as a producer posts it (RFD 5, "Change feed API").

    ``op`` unset means ``patch`` where the feed says ``changes: delta``, else ``put``.
    """

    changes: JsonObject
    sequence_id: SequenceId | UnsetType = UNSET
    expected_offset: ExpectedOffset | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    change_feed_id: str | UnsetType = UNSET
    processed: bool | UnsetType = UNSET
    op: OpName | UnsetType = UNSET
    key: str | UnsetType = UNSET
    changed: list[str] | UnsetType = UNSET
    before: JsonValue | UnsetType = UNSET
    table: list[str] | UnsetType = UNSET
    tx: Name | UnsetType = UNSET
    tx_index: U64 | UnsetType = UNSET
    tx_last: bool | UnsetType = UNSET
    source_time: str | UnsetType = UNSET
    copy: bool | UnsetType = UNSET
    control: Name | UnsetType = UNSET


class EntriesIn(Document):
    """Several entries as one atomic append."""

    entries: list[EntryIn]


class EntryOut(Answer):
    """An entry as a reader gets it.

    ``key_base64`` and ``tx_base64`` stand in where the stored bytes are no text, ``changes_base64`` and ``before_base64``
    where they are no JSON: a feed may be written over other faces too.
    """

    sequence_id: int
    lsn: str
    committed_at: str
    changes: JsonObject | UnsetType = UNSET
    op: str = "put"
    key: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    changes_base64: str | UnsetType = UNSET
    changed: list[str] | UnsetType = UNSET
    before: JsonValue | UnsetType = UNSET
    before_base64: str | UnsetType = UNSET
    table: list[str] | UnsetType = UNSET
    tx: str | UnsetType = UNSET
    tx_base64: str | UnsetType = UNSET
    tx_index: int | UnsetType = UNSET
    tx_last: bool | UnsetType = UNSET
    source_time: str | UnsetType = UNSET
    copy: bool | UnsetType = UNSET
    control: str | UnsetType = UNSET

    def values(self) -> Any:
        """Return ``changes`` as Python values; ValueError if they are no JSON (then ``changes_base64`` holds them)."""
        if self.changes is UNSET:
            raise ValueError(f"the changes of entry {self.sequence_id} are no JSON")
        return msgspec.json.decode(self.changes)


class ChangesList(Answer):
    """A range or a long poll's answer. ``head_sequence_id`` is the newest entry's, 0 on an empty feed that begins at 1.

    ``last_sequence_id`` is the last one that was looked at, and so the reader's place, past what its filter took away;
    ``last_lsn`` is that entry's LSN, None where nothing was looked at.
    """

    changes_list: list[EntryOut]
    incarnation: str
    head_sequence_id: int
    oldest_sequence_id: int
    last_sequence_id: int | None = None
    last_lsn: str | None = None


class RegisterPublisher(Document, omit_defaults=True):
    """``POST /publishers/register``.

    ``shared``: the feed has no owner, and any producer that says so registers beside the others. A feed is owned or shared
    for life.
    """

    agent_id: str
    change_feed_id: str
    instance: str | UnsetType = UNSET
    shared: bool = False
    snapshot_url: str | UnsetType = UNSET
    tenant_id: str | UnsetType = UNSET
    takeover: bool = False


class PublisherRegistered(Answer):
    """What a publisher needs to go on: where the feed is, and the epoch that its appends carry.

    The epoch is the feed's, or on a shared feed this producer's own. ``snapshot_ticket_key``: 32 bytes as base64url, if a
    ``snapshot_url`` was given: what tickets of its snapshots are signed with.
    """

    change_feed_id: str
    next_sequence_id: int
    epoch: int
    incarnation: str
    region_id: int
    shared: bool = False
    snapshot_ticket_key: str | UnsetType = UNSET


class Appended(Answer):
    """Where an append stands. ``duplicate``: it had already been stored, these are its original places."""

    first_sequence_id: int
    last_sequence_id: int
    first_lsn: str
    last_lsn: str
    incarnation: str
    duplicate: bool = False


class LastFrame(Answer):
    """A producer's last append; ``source_position`` is base64."""

    first_sequence_id: int
    count: int
    source_position: str = ""


class Tail(Answer):
    """Where a feed ends, and the last append of the producer asked for, with the epoch of its last registration.

    A shared feed has no owner, and its ``epoch`` is 0. ``expected_offset`` is the feed's setting.
    """

    change_feed_id: str
    next_sequence_id: int
    newest_lsn: str
    incarnation: str
    region_id: int
    owner: str
    epoch: int
    last_frame: LastFrame | None = None
    shared: bool = False
    producer_epoch: int | None = None
    expected_offset: OffsetTerms = "optional"


class ChangeSettings(Document, omit_defaults=True):
    """``PUT /feeds/{id}/settings``: what is left out stays as it is.

    ``key_field``: the member of ``changes`` that is the key of an entry that names none. ``changes``: what an entry without
    ``op`` carries. ``expected_offset``: whether each entry must name its place, may, or names it in vain.
    """

    key_field: Name | UnsetType = UNSET
    changes: ChangesTerms | UnsetType = UNSET
    expected_offset: OffsetTerms | UnsetType = UNSET


class FeedSettings(Answer):
    """A feed's settings as they are now."""

    change_feed_id: str
    key_field: str
    changes: ChangesTerms
    expected_offset: OffsetTerms


class RegisterListener(Document, omit_defaults=True):
    """``POST /listeners/register``."""

    listener_id: str
    change_feed_id: str
    hold: bool = False


class ListenerRegistered(Answer):
    """The feed's bounds, and the position this listener last reported (None: it never did)."""

    change_feed_id: str
    incarnation: str
    oldest_sequence_id: int
    head_sequence_id: int
    position: int | None = None


class PositionIn(Document, omit_defaults=True):
    """A listener's bookmark."""

    incarnation: str
    sequence_id: U64
    lsn: str | None = None


class Position(Answer):
    """The bookmark that a listener has reported."""

    listener_id: str
    change_feed_id: str
    incarnation: str
    sequence_id: int
    lsn: str | None = None


class TimeToLoss(Answer):
    """How long a consumer has before retention takes what it needs next, at the rates of the last minutes.

    ``seconds`` is None where nothing threatens it or nothing is known; ``text`` says it in words.
    """

    state: str
    seconds: float | None
    text: str


class ListenerView(Answer):
    """A listener as ``GET /feeds`` shows it; None where something is not known.

    ``lag_seconds``: from the commit of the entry at its position to that of the newest entry. ``lag_bytes``: stored bytes of
    this feed after its position. ``hold``: retention waits for it.
    """

    listener_id: str
    sequence_id: int | None
    lag_entries: int | None
    seen_at: str
    lag_seconds: float | None = None
    lag_bytes: int | None = None
    hold: bool = False
    time_to_loss: TimeToLoss | None = None


class SubscriberView(Answer):
    """A subscriber of the stream over all feeds, as one feed shows it: the lags are those of this feed's entries.

    ``lsn``: its place. ``lag_seconds``: from its place to the feed's newest entry.
    """

    subject: str
    subscriber_id: str
    lsn: str
    lag_entries: int
    lag_bytes: int
    lag_seconds: float
    seen_at: str
    time_to_loss: TimeToLoss


class HydrationView(Answer):
    """A hydration lease as ``GET /feeds`` shows it; ``snapshot_id``: the snapshot that is taken, None until it is named."""

    listener_id: str
    holds_from_sequence_id: int
    snapshot_id: str | None
    sequence_id: int | None
    expires_at: str


class FeedView(Answer):
    """A feed as ``GET /feeds`` shows it. ``first_sequence_id``: where it began, 0 if nothing was ever appended."""

    change_feed_id: str
    region_id: int
    tenant_id: str
    incarnation: str
    owner: str
    epoch: int
    oldest_sequence_id: int
    head_sequence_id: int
    next_sequence_id: int
    newest_lsn: str
    quarantined: bool
    listeners: list[ListenerView]
    subscribers: list[SubscriberView] = []
    shared: bool = False
    settings: FeedSettings | None = None
    hydrations: list[HydrationView] = []
    first_sequence_id: int = 0
    lost_lsns: list[LostLsns] = []


class FeedList(Answer):
    """``GET /feeds``."""

    feeds: list[FeedView]


class AlarmView(Answer):
    """Something that needs a person."""

    alarm_id: int
    code: str
    raised_at: str
    detail: str
    change_feed_id: str = ""
    agent_id: str = ""
    cleared_at: str | None = None


class AlarmList(Answer):
    """``GET /alarms``: the raised ones first."""

    alarms: list[AlarmView]


class Released(Answer):
    """The feeds in which a publisher's quarantine was lifted."""

    agent_id: str
    feeds: list[str]


class Health(Answer):
    """``GET /healthz`` and ``/readyz``; ``reasons`` says why it is not ready."""

    status: Literal["ok", "not-ready"]
    version: str
    reasons: list[str]


class Problem(Answer):
    """A refusal or failure (RFC 9457). ``code`` never changes; further members tell what the code is about.

    ``retryable``: the same request can succeed later without a change. A refused append also has ``side_effects`` (can its
    entries be in the feed, or still appear?), ``index`` of the first entry at fault, ``expected`` and ``actual_next``.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    retryable: bool
    side_effects: Literal["none", "possible"] | UnsetType = UNSET
    index: int | UnsetType = UNSET
    expected: int | UnsetType = UNSET
    actual_next: int | UnsetType = UNSET


def rfc3339(ms: int) -> str:
    """Return UTC milliseconds as RFC 3339 text with milliseconds, such as ``2026-11-21T01:20:00.123Z``."""
    stamp = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def ms_of_rfc3339(text: str) -> int:
    """Return the UTC milliseconds of RFC 3339 text with a zone; ValueError for anything else."""
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not an RFC 3339 time with a zone")
    return round(datetime.fromisoformat(text.upper()).timestamp() * 1000)
