"""Events out of bytes: a real file, made-up events of each kind, and what is wrong with damaged ones."""

import struct
import zlib

import pytest

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import (
    Format,
    GtidList,
    GtidPosition,
    Heartbeat,
    Ignored,
    Incident,
    Place,
    Rotate,
    RowsChanged,
    Statement,
    TableMapped,
)
from headrace.capture.binlog.kinds import EventKind
from headrace.errors import BinlogInvalid, BinlogUnsupported, HeadraceError
from tests.golden.binlog_mariadb import CHARSETS, FOLDER, read_golden, told

RAW = read_golden()
FORMAT = RAW[0]
ARTIFICIAL, IGNORABLE = 0x20, 0x80


def event(
    kind: int, body: bytes = b"", *, end: int = 0, flags: int = 0, time_s: int = 5, checksum: bool = True
) -> bytes:
    size = 19 + len(body) + 4 * checksum
    raw = struct.pack("<IBIIIH", time_s, kind, 7, size, end, flags) + body
    return raw + zlib.crc32(raw).to_bytes(4, "little") if checksum else raw


def first(kind: EventKind) -> bytes:
    return next(raw for raw in RAW if raw[4] == kind)


def started(*events: bytes) -> Decoder:
    decoder = Decoder(CHARSETS)
    for raw in (event(EventKind.ROTATE, struct.pack("<Q", 4) + b"binlog.000009", time_s=0), FORMAT, *events):
        decoder.decode(raw)
    return decoder


def test_a_real_file_is_read_as_ever() -> None:
    assert list(told(RAW)) == (FOLDER / "mariadb.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("place", [0, 5, 18, 19, 25, -5, -1])
def test_a_flipped_bit_is_noticed(place: int) -> None:
    for raw in RAW:
        flipped = bytearray(raw)
        flipped[place] ^= 0x10
        with pytest.raises(BinlogInvalid):
            started().decode(bytes(flipped))


def test_damage_is_named_by_kind_and_place() -> None:
    decoder = started(event(EventKind.XID, bytes(8), end=1031))
    with pytest.raises(
        BinlogInvalid, match=r"XID event at offset 1031 of binlog.000009: the transaction's number has 3"
    ):
        decoder.decode(event(EventKind.XID, bytes(3), end=1057))
    damaged = bytearray(event(EventKind.XID, bytes(8), end=1062))
    damaged[20] = 1
    with pytest.raises(
        BinlogInvalid, match=r"XID event at offset 1031 of binlog.000009: its checksum is another"
    ):
        decoder.decode(bytes(damaged))
    with pytest.raises(
        BinlogInvalid, match=r"an event of 18 bytes behind offset 1057 of binlog.000009 has no header"
    ):
        decoder.decode(bytes(damaged[:18]))
    with pytest.raises(BinlogInvalid, match="told as 31 bytes, but it has 30"):
        decoder.decode(bytes(damaged[:-1]))


def test_events_without_checksums() -> None:
    body = FORMAT[19:-5] + b"\0"
    decoder = Decoder(CHARSETS)
    assert not isinstance(
        decoder.decode(event(EventKind.ROTATE, struct.pack("<Q", 4) + b"b.1", checksum=False)), Ignored
    )
    found = decoder.decode(event(EventKind.FORMAT_DESCRIPTION, body))
    assert isinstance(found, Format)
    assert not found.checksums
    assert decoder.decode(event(EventKind.XID, struct.pack("<Q", 9), checksum=False)).end == 4
    with pytest.raises(BinlogInvalid, match="before the first ROTATE: its checksum is another"):
        Decoder(CHARSETS).decode(event(EventKind.XID, struct.pack("<Q", 9), checksum=False))


def test_a_rotation_tells_file_and_offset() -> None:
    decoder = started()
    assert decoder.place == Place("binlog.000009", 256)
    fake = decoder.decode(
        event(EventKind.ROTATE, struct.pack("<Q", 4) + b"binlog.000010", flags=ARTIFICIAL, time_s=0)
    )
    assert fake == Rotate(0, 7, 256, "binlog.000010", 4, fake=True)
    real = decoder.decode(event(EventKind.ROTATE, struct.pack("<Q", 4) + b"binlog.000011", end=300))
    assert real == Rotate(5, 7, 300, "binlog.000011", 4, fake=False)
    assert decoder.place == Place("binlog.000011", 4)
    for name in (b"", b"binlog", b"a/b.1", b"\xff.1"):
        with pytest.raises(BinlogInvalid, match="the file's name"):
            decoder.decode(event(EventKind.ROTATE, bytes(8) + name))


def test_offsets_beyond_what_the_header_holds() -> None:
    decoder, end = started(), 256
    for step in (1 << 31, 1 << 30, (1 << 30) + 31, 31, 31):
        end += step - 1
        assert decoder.decode(event(EventKind.XID, bytes(8), end=end % (1 << 32))).end == end
    assert decoder.decode(event(EventKind.XID, bytes(8))).end == end
    assert started().decode(event(EventKind.XID, bytes(8), end=0xFFFFFFF0)).end == 0xFFFFFFF0


def test_heartbeats_move_nothing() -> None:
    decoder = started()
    for body, end in ((b"binlog.000009", 5000), (struct.pack("<Q", 1 << 33) + b"binlog.000009", 0)):
        found = decoder.decode(event(EventKind.HEARTBEAT, body, end=end, time_s=0))
        assert found == Heartbeat(0, 7, 256, "binlog.000009")
    assert decoder.place == Place("binlog.000009", 256)
    with pytest.raises(
        BinlogInvalid, match=r"HEARTBEAT event behind offset 256 of binlog.000009: the file's name"
    ):
        decoder.decode(event(EventKind.HEARTBEAT, b"?"))


def test_the_list_of_gtids_holds_each_domain_once_in_its_position() -> None:
    gtids = b"".join(struct.pack("<IIQ", *gtid) for gtid in ((0, 1, 5), (0, 2, 6), (3, 1, 1)))
    found = started().decode(event(EventKind.GTID_LIST, struct.pack("<I", 3 | 1 << 28) + gtids))
    assert isinstance(found, GtidList)
    assert [str(gtid) for gtid in found.gtids] == ["0-1-5", "0-2-6", "3-1-1"]
    assert found.position == GtidPosition.parse("0-2-6,3-1-1")


def test_an_incident_says_what_it_is() -> None:
    found = started().decode(event(EventKind.INCIDENT, b"\1\0\4lost"))
    assert isinstance(found, Incident)
    assert found.text == "lost"


def test_a_statement_has_its_mode_and_the_text_of_its_character_set() -> None:
    state = (
        b"\0"
        + bytes(4)
        + b"\1"
        + struct.pack("<Q", 1 << 2 | 1 << 20)
        + b"\6\3std"
        + b"\4\x08\0\x08\0\x08\0"
        + b"\xc8?"
    )
    body = struct.pack("<IIBHH", 1, 0, 2, 3, len(state)) + state + b"db\0" + "DROP TABLE é".encode("latin1")
    found = started().decode(event(EventKind.QUERY, body))
    assert isinstance(found, Statement)
    assert (found.database, found.sql, found.charset, found.error) == ("db", "DROP TABLE é", "latin1", 3)
    assert found.ansi_quotes
    assert found.no_backslash_escapes
    unknown = body.replace(b"\4\x08\0", b"\4\xff\0")
    found = started().decode(event(EventKind.QUERY, unknown))
    assert isinstance(found, Statement)
    assert found.sql == "DROP TABLE \ufffd"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (EventKind.MYSQL_GTID, "only MySQL writes such events"),
        (EventKind.EXECUTE_LOAD_QUERY, "set binlog_format = ROW"),
        (99, "kind 99 event at offset 256 of binlog.000009: this version does not know"),
    ],
)
def test_kinds_that_are_not_read(kind: int, why: str) -> None:
    with pytest.raises(BinlogUnsupported, match=why):
        started().decode(event(kind, b"x", end=256 + 24))
    assert isinstance(started().decode(event(kind, b"x", flags=IGNORABLE)), Ignored)


def test_a_server_that_is_no_mariadb_is_refused() -> None:
    mysql = FORMAT[19 : 19 + 57 + 41] + b"\1"
    with pytest.raises(BinlogUnsupported, match="MySQL is not supported"):
        Decoder({}).decode(event(EventKind.FORMAT_DESCRIPTION, mysql))


def test_other_sizes_than_the_reader_knows_are_refused() -> None:
    body = bytearray(FORMAT[19:-4])
    body[57 + EventKind.TABLE_MAP - 1] = 6
    with pytest.raises(BinlogInvalid, match="says 6 bytes for the head of TABLE_MAP, not 8"):
        Decoder({}).decode(event(EventKind.FORMAT_DESCRIPTION, bytes(body)))


def test_a_table_map_without_names_names_the_variable() -> None:
    body = bytes(8) + b"\4shop\0" + b"\5every\0" + b"\1\3\0\0"
    with pytest.raises(BinlogUnsupported, match=r"does not name the columns of shop\.every") as caught:
        started().decode(event(EventKind.TABLE_MAP, body))
    assert "binlog_row_metadata = FULL" in caught.value.advice


def test_the_same_shape_is_the_same_value() -> None:
    decoder, raw = started(), first(EventKind.TABLE_MAP)
    one, two = decoder.decode(raw), decoder.decode(raw)
    assert isinstance(one, TableMapped)
    assert isinstance(two, TableMapped)
    assert one.table is two.table
    other = decoder.decode(event(EventKind.TABLE_MAP, b"\x63" + raw[20:-4]))
    assert isinstance(other, TableMapped)
    assert other.table.table_id == 0x63
    assert other.table.identity == one.table.identity


def test_rows_with_extra_data_and_many_columns() -> None:
    rows = struct.pack("<IHH", 3, 0, 1) + b"\x04\0\1\2" + b"\xfc\x2c\1" + b"\xff" * 38 + b"data"
    found = started().decode(event(EventKind.DELETE_ROWS, rows))
    assert isinstance(found, RowsChanged)
    assert (found.table_id, found.column_count, found.data, found.end_of_statement) == (3, 300, b"data", True)
    assert found.before == b"\xff" * 38
    assert found.after is None
    with pytest.raises(BinlogInvalid, match="begins with 0xfb, which no packed number does"):
        started().decode(event(EventKind.DELETE_ROWS, rows.replace(b"\xfc\x2c", b"\xfb\x2c")))
    for cut in range(len(rows) - 4):
        with pytest.raises(HeadraceError):
            started().decode(event(EventKind.DELETE_ROWS, rows[:cut]))
