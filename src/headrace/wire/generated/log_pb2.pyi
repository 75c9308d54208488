from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SideEffects(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POSSIBLE: _ClassVar[SideEffects]
    NONE: _ClassVar[SideEffects]
POSSIBLE: SideEffects
NONE: SideEffects

class AppendRequest(_message.Message):
    __slots__ = ("feed", "producer_id", "epoch", "expected_offsets", "entries", "entry_lengths", "source_position", "request", "incarnation", "marked_at_ms", "posted_at_ms", "traceparent")
    FEED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_POSITION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MARKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    POSTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    feed: str
    producer_id: str
    epoch: int
    expected_offsets: _containers.RepeatedScalarFieldContainer[int]
    entries: bytes
    entry_lengths: bytes
    source_position: bytes
    request: int
    incarnation: bytes
    marked_at_ms: int
    posted_at_ms: int
    traceparent: str
    def __init__(self, feed: _Optional[str] = ..., producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., expected_offsets: _Optional[_Iterable[int]] = ..., entries: _Optional[bytes] = ..., entry_lengths: _Optional[bytes] = ..., source_position: _Optional[bytes] = ..., request: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., marked_at_ms: _Optional[int] = ..., posted_at_ms: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("request", "appended", "refusal")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    request: int
    appended: Appended
    refusal: Refusal
    def __init__(self, request: _Optional[int] = ..., appended: _Optional[_Union[Appended, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("first_sequence_id", "last_sequence_id", "first_lsn", "last_lsn", "incarnation", "duplicate")
    FIRST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    LAST_LSN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    first_sequence_id: int
    last_sequence_id: int
    first_lsn: str
    last_lsn: str
    incarnation: bytes
    duplicate: bool
    def __init__(self, first_sequence_id: _Optional[int] = ..., last_sequence_id: _Optional[int] = ..., first_lsn: _Optional[str] = ..., last_lsn: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("index", "code", "expected", "actual_next", "retryable", "side_effects", "detail", "hint")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_NEXT_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    SIDE_EFFECTS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    expected: int
    actual_next: int
    retryable: bool
    side_effects: SideEffects
    detail: str
    hint: str
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., expected: _Optional[int] = ..., actual_next: _Optional[int] = ..., retryable: _Optional[bool] = ..., side_effects: _Optional[_Union[SideEffects, str]] = ..., detail: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("feed", "producer_id")
    FEED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    feed: str
    producer_id: str
    def __init__(self, feed: _Optional[str] = ..., producer_id: _Optional[str] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("end", "refusal")
    END_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    end: FeedEnd
    refusal: Refusal
    def __init__(self, end: _Optional[_Union[FeedEnd, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class FeedEnd(_message.Message):
    __slots__ = ("next_sequence_id", "newest_lsn", "incarnation", "region_id", "owner", "epoch", "last_frame")
    NEXT_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    NEWEST_LSN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_FRAME_FIELD_NUMBER: _ClassVar[int]
    next_sequence_id: int
    newest_lsn: str
    incarnation: bytes
    region_id: int
    owner: str
    epoch: int
    last_frame: LastFrame
    def __init__(self, next_sequence_id: _Optional[int] = ..., newest_lsn: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., region_id: _Optional[int] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., last_frame: _Optional[_Union[LastFrame, _Mapping]] = ...) -> None: ...

class LastFrame(_message.Message):
    __slots__ = ("first_sequence_id", "count", "source_position")
    FIRST_SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_POSITION_FIELD_NUMBER: _ClassVar[int]
    first_sequence_id: int
    count: int
    source_position: bytes
    def __init__(self, first_sequence_id: _Optional[int] = ..., count: _Optional[int] = ..., source_position: _Optional[bytes] = ...) -> None: ...
