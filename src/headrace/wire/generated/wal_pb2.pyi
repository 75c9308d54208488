from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OP_PUT: _ClassVar[OpType]
    OP_DELETE: _ClassVar[OpType]
    OP_BATCH: _ClassVar[OpType]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[Compression]
    SNAPPY: _ClassVar[Compression]
    ZSTD: _ClassVar[Compression]
OP_PUT: OpType
OP_DELETE: OpType
OP_BATCH: OpType
NONE: Compression
SNAPPY: Compression
ZSTD: Compression

class WalEntry(_message.Message):
    __slots__ = ("lsn", "committed_at_ms", "tenant_id", "key_prefix", "op_type", "key", "value", "hlc_ts", "checksum", "append_end", "source_tx", "tx_index", "tx_last", "source_time_ms", "copy", "control", "patch", "changed", "before", "table")
    LSN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HLC_TS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    APPEND_END_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TX_FIELD_NUMBER: _ClassVar[int]
    TX_INDEX_FIELD_NUMBER: _ClassVar[int]
    TX_LAST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    lsn: str
    committed_at_ms: int
    tenant_id: str
    key_prefix: str
    op_type: OpType
    key: bytes
    value: bytes
    hlc_ts: int
    checksum: bytes
    append_end: bool
    source_tx: bytes
    tx_index: int
    tx_last: bool
    source_time_ms: int
    copy: bool
    control: str
    patch: bool
    changed: _containers.RepeatedScalarFieldContainer[str]
    before: bytes
    table: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lsn: _Optional[str] = ..., committed_at_ms: _Optional[int] = ..., tenant_id: _Optional[str] = ..., key_prefix: _Optional[str] = ..., op_type: _Optional[_Union[OpType, str]] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., hlc_ts: _Optional[int] = ..., checksum: _Optional[bytes] = ..., append_end: _Optional[bool] = ..., source_tx: _Optional[bytes] = ..., tx_index: _Optional[int] = ..., tx_last: _Optional[bool] = ..., source_time_ms: _Optional[int] = ..., copy: _Optional[bool] = ..., control: _Optional[str] = ..., patch: _Optional[bool] = ..., changed: _Optional[_Iterable[str]] = ..., before: _Optional[bytes] = ..., table: _Optional[_Iterable[str]] = ...) -> None: ...

class Mutation(_message.Message):
    __slots__ = ("op", "key", "value")
    OP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    op: OpType
    key: bytes
    value: bytes
    def __init__(self, op: _Optional[_Union[OpType, str]] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class BatchWrite(_message.Message):
    __slots__ = ("mutations",)
    MUTATIONS_FIELD_NUMBER: _ClassVar[int]
    mutations: _containers.RepeatedCompositeFieldContainer[Mutation]
    def __init__(self, mutations: _Optional[_Iterable[_Union[Mutation, _Mapping]]] = ...) -> None: ...

class WalBatch(_message.Message):
    __slots__ = ("entries", "first_lsn", "last_lsn", "compression", "compressed_entries", "entry_lengths", "first_local_lsn", "last_local_lsn", "incarnations")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    LAST_LSN_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    FIRST_LOCAL_LSN_FIELD_NUMBER: _ClassVar[int]
    LAST_LOCAL_LSN_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[WalEntry]
    first_lsn: str
    last_lsn: str
    compression: Compression
    compressed_entries: bytes
    entry_lengths: bytes
    first_local_lsn: int
    last_local_lsn: int
    incarnations: _containers.RepeatedCompositeFieldContainer[Incarnation]
    def __init__(self, entries: _Optional[_Iterable[_Union[WalEntry, _Mapping]]] = ..., first_lsn: _Optional[str] = ..., last_lsn: _Optional[str] = ..., compression: _Optional[_Union[Compression, str]] = ..., compressed_entries: _Optional[bytes] = ..., entry_lengths: _Optional[bytes] = ..., first_local_lsn: _Optional[int] = ..., last_local_lsn: _Optional[int] = ..., incarnations: _Optional[_Iterable[_Union[Incarnation, _Mapping]]] = ...) -> None: ...

class Incarnation(_message.Message):
    __slots__ = ("region_id", "incarnation")
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    region_id: int
    incarnation: str
    def __init__(self, region_id: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("start_lsn", "tenant_filter", "key_prefix_filter", "batch_size_hint", "accept_compression", "want_lengths", "start_time_ms", "shard")
    START_LSN_FIELD_NUMBER: _ClassVar[int]
    TENANT_FILTER_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FILTER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_HINT_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    WANT_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    start_lsn: str
    tenant_filter: str
    key_prefix_filter: str
    batch_size_hint: int
    accept_compression: _containers.RepeatedScalarFieldContainer[Compression]
    want_lengths: bool
    start_time_ms: int
    shard: str
    def __init__(self, start_lsn: _Optional[str] = ..., tenant_filter: _Optional[str] = ..., key_prefix_filter: _Optional[str] = ..., batch_size_hint: _Optional[int] = ..., accept_compression: _Optional[_Iterable[_Union[Compression, str]]] = ..., want_lengths: _Optional[bool] = ..., start_time_ms: _Optional[int] = ..., shard: _Optional[str] = ...) -> None: ...

class WalResponse(_message.Message):
    __slots__ = ("batch", "heartbeat", "error")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    batch: WalBatch
    heartbeat: Heartbeat
    error: str
    def __init__(self, batch: _Optional[_Union[WalBatch, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("current_lsn", "rotate")
    CURRENT_LSN_FIELD_NUMBER: _ClassVar[int]
    ROTATE_FIELD_NUMBER: _ClassVar[int]
    current_lsn: str
    rotate: bool
    def __init__(self, current_lsn: _Optional[str] = ..., rotate: _Optional[bool] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("ack_lsn",)
    ACK_LSN_FIELD_NUMBER: _ClassVar[int]
    ack_lsn: str
    def __init__(self, ack_lsn: _Optional[str] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("watermark_lsn",)
    WATERMARK_LSN_FIELD_NUMBER: _ClassVar[int]
    watermark_lsn: str
    def __init__(self, watermark_lsn: _Optional[str] = ...) -> None: ...

class GetLSNRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLSNResponse(_message.Message):
    __slots__ = ("head_lsn", "oldest_lsn", "place_lsn")
    HEAD_LSN_FIELD_NUMBER: _ClassVar[int]
    OLDEST_LSN_FIELD_NUMBER: _ClassVar[int]
    PLACE_LSN_FIELD_NUMBER: _ClassVar[int]
    head_lsn: str
    oldest_lsn: str
    place_lsn: str
    def __init__(self, head_lsn: _Optional[str] = ..., oldest_lsn: _Optional[str] = ..., place_lsn: _Optional[str] = ...) -> None: ...
