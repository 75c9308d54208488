"""Messages <-> their Avro form: bare data of the one schema (``avro_schema``), of which each is a ``Message``.

Reads what both generations of TiCDC write. Writes what both read: BIT as the string that values have, ``decimal`` for every
type with a fraction. ``docs/formats/simple-avro.md`` has the bytes.
"""

from __future__ import annotations

from headrace.simple.avro_read import read_message
from headrace.simple.avro_rows import UNUSUAL, learn_to_read, learn_to_write, row_bytes, row_message
from headrace.simple.avro_write import write_message
from headrace.simple.message import Dml, Message


def encode(message: Message) -> bytes:
    """Return the Avro form of ``message``; the columns of a row in the order that it has.

    SimpleInvalid, naming message, field and expected type, for what the form can't carry: numbers out of range, a
    ``start_ts``, a row without columns, raw values of other types, text that is no Unicode.
    """
    if type(message) is not Dml:
        return write_message(message)
    try:
        return row_bytes(message)
    except UNUSUAL:
        data = write_message(message)
        learn_to_write(message)
        return data


def decode(data: bytes) -> Message:
    """Return the message in ``data``; bytes behind its end are ignored, as by every reader.

    SimpleInvalid, naming message, field and expected type, for bytes that are none; SimpleUnsupported for what is not read:
    another version, rows that stand elsewhere or without their values, compression, frames around the message.
    """
    try:
        return row_message(data)
    except UNUSUAL:
        message = read_message(data)
        if type(message) is Dml:
            learn_to_read(data, message)
        return message
