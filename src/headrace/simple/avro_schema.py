"""The one Avro schema of the Simple Protocol: a union of records, of which a message is always the last.

``SCHEMA`` is what any other Avro library needs to read and write the messages; ``json.dumps`` makes an .avsc file of it.
The codec doesn't walk it: the order of its fields stands in the code of ``avro_read`` and ``avro_write``.
"""

from __future__ import annotations

from typing import Final

from headrace.simple.message import MessageType

NAMESPACE: Final = "com.pingcap.simple.avro"

KINDS: Final = ("WATERMARK", "BOOTSTRAP", "DDL", "DML")
"""The enum MessageType, and in the same order the branches of a message's payload."""

DDL_KINDS: Final = (
    MessageType.CREATE,
    MessageType.ALTER,
    MessageType.ERASE,
    MessageType.RENAME,
    MessageType.TRUNCATE,
    MessageType.CINDEX,
    MessageType.DINDEX,
    MessageType.QUERY,
)
"""The enum DDLType."""

DML_KINDS: Final = (MessageType.INSERT, MessageType.UPDATE, MessageType.DELETE)
"""The enum DMLType."""

BRANCHES: Final = ("null", "long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint")
"""What the value of a column may be."""

NULL, LONG, FLOAT, DOUBLE, STRING, BYTES, TIMESTAMP, UNSIGNED_BIGINT = range(len(BRANCHES))

NUMERIC_TYPES: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "bit", "year", "decimal"}
)
"""MySQL types whose ``unsigned`` and ``zerofill`` are written even if false."""

DECIMAL_TYPES: Final = frozenset({"decimal", "datetime", "time", "timestamp"})
"""MySQL types whose ``decimal`` is written even if it is 0."""

RECORDS: Final = (
    "DataType",
    "ColumnSchema",
    "IndexSchema",
    "TableSchema",
    "Checksum",
    "Watermark",
    "Bootstrap",
    "DDL",
    "Timestamp",
    "UnsignedBigint",
    "DML",
    "Message",
)
"""The branches of the union that the schema is."""


def _full(name: str) -> str:
    return f"{NAMESPACE}.{name}"


def _field(name: str, of: object) -> dict[str, object]:
    return {"name": name, "type": of}


def _optional(name: str, of: object) -> dict[str, object]:
    return {"name": name, "type": ["null", of], "default": None}


def _array(of: object) -> dict[str, object]:
    return {"type": "array", "items": of}


def _enum(name: str, symbols: tuple[str, ...]) -> dict[str, object]:
    return {"type": "enum", "namespace": NAMESPACE, "name": name, "symbols": [str(word) for word in symbols]}


_VALUE: Final = [*BRANCHES[:TIMESTAMP], *(_full(name) for name in BRANCHES[TIMESTAMP:])]
_ROW: Final = {"type": "map", "values": _VALUE}

_FIELDS: Final[dict[str, list[dict[str, object]]]] = {
    "DataType": [
        _field("mysqlType", "string"),
        _field("charset", "string"),
        _field("collate", "string"),
        _field("length", "long"),
        _optional("decimal", "int"),
        _optional("elements", _array("string")),
        _optional("unsigned", "boolean"),
        _optional("zerofill", "boolean"),
    ],
    "ColumnSchema": [
        _field("name", "string"),
        _field("dataType", _full("DataType")),
        _field("nullable", "boolean"),
        _field("default", ["null", "string"]),
    ],
    "IndexSchema": [
        _field("name", "string"),
        _field("unique", "boolean"),
        _field("primary", "boolean"),
        _field("nullable", "boolean"),
        _field("columns", _array("string")),
    ],
    "TableSchema": [
        _field("database", "string"),
        _field("table", "string"),
        _field("tableID", "long"),
        _field("version", "long"),
        _field("columns", _array(_full("ColumnSchema"))),
        _field("indexes", _array(_full("IndexSchema"))),
    ],
    "Checksum": [
        _field("version", "int"),
        _field("corrupted", "boolean"),
        _field("current", "long"),
        _field("previous", "long"),
    ],
    "Watermark": [_field("version", "int"), _field("commitTs", "long"), _field("buildTs", "long")],
    "Bootstrap": [
        _field("version", "int"),
        _field("buildTs", "long"),
        _field("tableSchema", _full("TableSchema")),
    ],
    "DDL": [
        _field("version", "int"),
        _field("type", _enum("DDLType", DDL_KINDS)),
        _field("sql", "string"),
        _field("commitTs", "long"),
        _field("buildTs", "long"),
        _optional("tableSchema", _full("TableSchema")),
        _optional("preTableSchema", _full("TableSchema")),
    ],
    "Timestamp": [_field("location", "string"), _field("value", "string")],
    "UnsignedBigint": [_field("value", "long")],
    "DML": [
        _field("version", "int"),
        _field("database", "string"),
        _field("table", "string"),
        _field("tableID", "long"),
        _field("type", _enum("DMLType", DML_KINDS)),
        _field("commitTs", "long"),
        _field("buildTs", "long"),
        _field("schemaVersion", "long"),
        _optional("claimCheckLocation", "string"),
        _optional("handleKeyOnly", "boolean"),
        _optional("checksum", _full("Checksum")),
        _optional("data", _ROW),
        _optional("old", _ROW),
    ],
    "Message": [
        _field("type", _enum("MessageType", KINDS)),
        _field("payload", [_full(name) for name in ("Watermark", "Bootstrap", "DDL", "DML")]),
    ],
}

SCHEMA: Final[list[dict[str, object]]] = [
    {"type": "record", "namespace": NAMESPACE, "name": name, "fields": _FIELDS[name]} for name in RECORDS
]
