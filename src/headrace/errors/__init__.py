"""The whole error tree: a stable code, what to do, and whether trying again can help.

::

    HeadraceError
    ├── Refused                     the request can't be served as it is; nothing was written
    │   ├── InvalidRequest          400  malformed, unknown member, wrong type (names the member)
    │   ├── TooLarge 413, UriTooLong 414, HeadersTooLarge 431, FeedNotFound 404, SchemaNotFound 404
    │   ├── Unauthenticated 401, Forbidden 403, TicketRefused 403    who asks must show that it may
    │   ├── NotRegistered 409, ListenersTooMany 409, ListenerTaken 403    publisher or listener; whose it is
    │   ├── FeedOwned, Fenced       409  another agent owns the feed; a newer registration took over
    │   ├── Quarantined             423  the publisher sent an entry twice; an operator must release it
    │   ├── DuplicateEntry, SequenceGap, StreamFailed   409  ``sequence-id`` is there, or beyond; one before it was refused
    │   ├── OffsetMismatch, ExpectedOffsetRequired   409  ``expected-offset`` is another; the feed asks for it
    │   ├── FeedRecreated, BeyondHead     409  the bookmark is of another history; the place is above the head
    │   ├── SequenceNotAvailable, LsnNotAvailable, SequenceLost   410  dropped by retention; skipped by a repair
    │   └── NoSnapshot 404, SnapshotForbidden 403, SnapshotGone 410    the publisher's snapshots
    ├── Unavailable                 try again later (503)
    │   ├── StoreUnavailable, ServerBusy, BodyTooSlow (408)    the store can't persist; bodies: too many bytes, too slow
    │   ├── DiskReserve, WriterStopped   the volume is nearly full; an fsync failed: no append until a restart
    │   ├── KeysUnavailable, ClockLead   no keys to check tokens with; the log's clock leads the wall clock by too much
    │   ├── SnapshotUnavailable, SnapshotBroken   no snapshot just now, or what came is none that is whole
    │   └── BackpressureTimeout, ServerUnreachable   a subscriber took nothing; no answer: a write's outcome may be unknown
    └── Stopped, QueryFailed        the process ends and says which command goes on
        ├── ConfigInvalid, DsnInvalid, TableNotFound, Usage, ParkedNotFound, IdentityNeeded   exit 2
        ├── PortInUse, SourceUnavailable (SourceLocked), Stalled, PlatformUnsupported, SetupMissing, EntryRefused   exit 1
        ├── FormatTooNew, DataFolderLocked, JournalLoss, JournalCorrupt, MetadataCorrupt, ControlsTooMany    exit 3
        ├── AttachUnsafe, FeedBehindOutbox, OutboxBehindFeed, AgentFenced, FeedUnfit 3; SparkBusy, SparkEnded 1
        ├── SourceForbidden, StoreForbidden, StoreUnsafe, TokenExposed   databases: rights, durability; tokens; exit 3
        ├── SegmentCorrupt, SegmentGap, SegmentsOverlap, BaseCorrupt, BackupGap, ArchiveOwned, ArchiveConflict; ArchiveFull 1
        ├── PruneRefused, OutNotEmpty, RestoreInexact, TargetInsideAppend   exit 3; TargetUnreachable, ArchiveUnavailable   4
        ├── BookmarkMoved, BookmarkCorrupt, FilterDiffers, ParkedTooMany, ParkedWaiting  their store; 3; CheckpointNotFound 1
        ├── MessageTooLarge, TopicGone, TopicUnfit, CheckpointAhead, CheckpointUnfit   3; BrokerUnavailable   1
        ├── RowUnfit, BatchTooLarge, BatchSplit, BatchChanged, BatchMissing, BatchStale, SinkTaken   Spark's sink; exit 3
        ├── NothingPublished, TableNotPublished, StaleTable, VersionGone   tables; exit 1; LedgerCorrupt 3
        ├── AuditBehind, SourceShifted   audits with a source; exit 4; PlaceUnknown 3, SourceNotAudited 2
        ├── SimpleInvalid, SimpleUnsupported, SimpleSchemaMissing, SimpleBacklogFull 3; CommandFailed, DemoFailed 1
        └── ValueUnfit, SourceUnfit, SourceReplaced, PositionPurged, BinlogInvalid, BinlogUnsupported, TableStopped   exit 3

A code never changes. HTTP status, exit code and what agents and listeners do (``recovery``) are class attributes.
"""

from __future__ import annotations

from headrace.errors.access import (
    Forbidden,
    KeysUnavailable,
    ListenerTaken,
    TicketRefused,
    TokenExposed,
    Unauthenticated,
)
from headrace.errors.answers import (
    BackpressureTimeout,
    BeyondHead,
    BodyTooSlow,
    ClockLead,
    DiskReserve,
    DuplicateEntry,
    ExpectedOffsetRequired,
    FeedNotFound,
    FeedOwned,
    FeedRecreated,
    Fenced,
    HeadersTooLarge,
    InvalidRequest,
    ListenersTooMany,
    LsnNotAvailable,
    MethodNotAllowed,
    NotRegistered,
    OffsetMismatch,
    Quarantined,
    Refused,
    RouteNotFound,
    SchemaNotFound,
    SequenceGap,
    SequenceLost,
    SequenceNotAvailable,
    ServerBusy,
    ServerUnreachable,
    StoreUnavailable,
    StreamFailed,
    TooLarge,
    Unavailable,
    UriTooLong,
    WriterStopped,
)
from headrace.errors.archives import (
    ArchiveConflict,
    ArchiveFull,
    ArchiveOwned,
    ArchiveUnavailable,
    BackupGap,
    BaseCorrupt,
    ControlsTooMany,
    IdentityNeeded,
    OutNotEmpty,
    PruneRefused,
    RestoreInexact,
    SegmentCorrupt,
    SegmentGap,
    SegmentsOverlap,
    TargetInsideAppend,
    TargetUnreachable,
)
from headrace.errors.auditing import AuditBehind, PlaceUnknown, SourceNotAudited, SourceShifted
from headrace.errors.capturing import (
    BinlogInvalid,
    BinlogUnsupported,
    FeedUnfit,
    PositionPurged,
    SourceReplaced,
    SourceUnfit,
    TableStopped,
)
from headrace.errors.listening import (
    BookmarkCorrupt,
    BookmarkMoved,
    CommandFailed,
    EntryRefused,
    FilterDiffers,
    ParkedNotFound,
    ParkedTooMany,
    ParkedWaiting,
)
from headrace.errors.querying import (
    CheckpointAhead,
    CheckpointNotFound,
    CheckpointUnfit,
    QueryFailed,
    SparkBusy,
    SparkEnded,
)
from headrace.errors.refusal import Refusal, complete_refusal, refusal_of, refused_with
from headrace.errors.root import HeadraceError, Recovery, SideEffects
from headrace.errors.sending import BrokerUnavailable, MessageTooLarge, TopicGone, TopicUnfit
from headrace.errors.simple import SimpleBacklogFull, SimpleInvalid, SimpleSchemaMissing, SimpleUnsupported
from headrace.errors.sinking import (
    BatchChanged,
    BatchMissing,
    BatchSplit,
    BatchStale,
    BatchTooLarge,
    RowUnfit,
    SinkTaken,
)
from headrace.errors.snapshots import (
    NoSnapshot,
    SnapshotBroken,
    SnapshotForbidden,
    SnapshotGone,
    SnapshotUnavailable,
)
from headrace.errors.stops import (
    AgentFenced,
    AttachUnsafe,
    ConfigInvalid,
    DataFolderLocked,
    DemoFailed,
    DsnInvalid,
    FeedBehindOutbox,
    FormatTooNew,
    JournalCorrupt,
    JournalLoss,
    MetadataCorrupt,
    OutboxBehindFeed,
    PlatformUnsupported,
    PortInUse,
    SetupMissing,
    SourceForbidden,
    SourceLocked,
    SourceUnavailable,
    Stalled,
    Stopped,
    StoreForbidden,
    StoreUnsafe,
    TableNotFound,
    Usage,
    ValueUnfit,
)
from headrace.errors.tables import LedgerCorrupt, NothingPublished, StaleTable, TableNotPublished, VersionGone

__all__ = [
    "AgentFenced",
    "ArchiveConflict",
    "ArchiveFull",
    "ArchiveOwned",
    "ArchiveUnavailable",
    "AttachUnsafe",
    "AuditBehind",
    "BackpressureTimeout",
    "BackupGap",
    "BaseCorrupt",
    "BatchChanged",
    "BatchMissing",
    "BatchSplit",
    "BatchStale",
    "BatchTooLarge",
    "BeyondHead",
    "BinlogInvalid",
    "BinlogUnsupported",
    "BodyTooSlow",
    "BookmarkCorrupt",
    "BookmarkMoved",
    "BrokerUnavailable",
    "CheckpointAhead",
    "CheckpointNotFound",
    "CheckpointUnfit",
    "ClockLead",
    "CommandFailed",
    "ConfigInvalid",
    "ControlsTooMany",
    "DataFolderLocked",
    "DemoFailed",
    "DiskReserve",
    "DsnInvalid",
    "DuplicateEntry",
    "EntryRefused",
    "ExpectedOffsetRequired",
    "FeedBehindOutbox",
    "FeedNotFound",
    "FeedOwned",
    "FeedRecreated",
    "FeedUnfit",
    "Fenced",
    "FilterDiffers",
    "Forbidden",
    "FormatTooNew",
    "HeadersTooLarge",
    "HeadraceError",
    "IdentityNeeded",
    "InvalidRequest",
    "JournalCorrupt",
    "JournalLoss",
    "KeysUnavailable",
    "LedgerCorrupt",
    "ListenerTaken",
    "ListenersTooMany",
    "LsnNotAvailable",
    "MessageTooLarge",
    "MetadataCorrupt",
    "MethodNotAllowed",
    "NoSnapshot",
    "NotRegistered",
    "NothingPublished",
    "OffsetMismatch",
    "OutNotEmpty",
    "OutboxBehindFeed",
    "ParkedNotFound",
    "ParkedTooMany",
    "ParkedWaiting",
    "PlaceUnknown",
    "PlatformUnsupported",
    "PortInUse",
    "PositionPurged",
    "PruneRefused",
    "Quarantined",
    "QueryFailed",
    "Recovery",
    "Refusal",
    "Refused",
    "RestoreInexact",
    "RouteNotFound",
    "RowUnfit",
    "SchemaNotFound",
    "SegmentCorrupt",
    "SegmentGap",
    "SegmentsOverlap",
    "SequenceGap",
    "SequenceLost",
    "SequenceNotAvailable",
    "ServerBusy",
    "ServerUnreachable",
    "SetupMissing",
    "SideEffects",
    "SimpleBacklogFull",
    "SimpleInvalid",
    "SimpleSchemaMissing",
    "SimpleUnsupported",
    "SinkTaken",
    "SnapshotBroken",
    "SnapshotForbidden",
    "SnapshotGone",
    "SnapshotUnavailable",
    "SourceForbidden",
    "SourceLocked",
    "SourceNotAudited",
    "SourceReplaced",
    "SourceShifted",
    "SourceUnavailable",
    "SourceUnfit",
    "SparkBusy",
    "SparkEnded",
    "StaleTable",
    "Stalled",
    "Stopped",
    "StoreForbidden",
    "StoreUnavailable",
    "StoreUnsafe",
    "StreamFailed",
    "TableNotFound",
    "TableNotPublished",
    "TableStopped",
    "TargetInsideAppend",
    "TargetUnreachable",
    "TicketRefused",
    "TokenExposed",
    "TooLarge",
    "TopicGone",
    "TopicUnfit",
    "Unauthenticated",
    "Unavailable",
    "UriTooLong",
    "Usage",
    "ValueUnfit",
    "VersionGone",
    "WriterStopped",
    "by_code",
    "complete_refusal",
    "every_error",
    "refusal_of",
    "refused_with",
]


def every_error() -> list[type[HeadraceError]]:
    """Return every class of the tree that has a code of its own, sorted by code (for docs and for the client)."""
    found: list[type[HeadraceError]] = []
    waiting: list[type[HeadraceError]] = [HeadraceError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if "code" in vars(kind):
            found.append(kind)
    return sorted(found, key=lambda kind: kind.code)


def by_code(code: str) -> type[HeadraceError]:
    """Return the class with this stable code; :class:`HeadraceError` for a code that this version doesn't know."""
    return next((kind for kind in every_error() if kind.code == code), HeadraceError)
