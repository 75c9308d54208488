"""The golden messages in Avro, each beside its twin in JSON: the same bytes again, and the same message."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headrace.simple import avro_codec, json_codec
from headrace.simple.message import Bootstrap, Dml, Message
from headrace.simple.schema import TableSchema
from headrace.simple.values import Encoding, Image, RowTypes
from tests.simple import GOLDEN, SAMPLES

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "simple-avro.md"
FILES = sorted(GOLDEN.rglob("*.avro"))


def schema_of(path: Path) -> TableSchema:
    if path.parent == GOLDEN:
        return msgspec.json.decode(SAMPLES["table-schema"], type=TableSchema)
    message = json_codec.decode(path.with_name("bootstrap.json").read_bytes())
    assert isinstance(message, Bootstrap)
    return message.table_schema


def twin(path: Path) -> Message:
    """The message of the JSON file of the same name, with the raw values that Avro has."""
    message = json_codec.decode(path.with_suffix(".json").read_bytes())
    if not isinstance(message, Dml):
        return message
    types, avro_types = (RowTypes(schema_of(path), encoding) for encoding in Encoding)
    images = {
        image: avro_types.write(types.read(message, image), "a golden row")
        for image in Image
        if getattr(message, image) is not None
    }
    return msgspec.structs.replace(message, **images)


def test_there_is_one_for_every_message() -> None:
    twins = {path.with_suffix(".avro") for path in GOLDEN.rglob("*.json")}
    assert set(FILES) == twins - {GOLDEN / "table-schema.avro"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_the_same_bytes_and_the_same_message_as_in_json(path: Path) -> None:
    data = path.read_bytes()
    message = twin(path)
    for _ in range(2):  # the long way, then the short one
        assert avro_codec.decode(data) == message
        assert avro_codec.encode(message) == data


def test_the_examples_of_the_page() -> None:
    blocks = re.findall(r"^```\n(16 .*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found = [
        bytes.fromhex("".join(re.findall(r"^(?:[0-9a-f]{2} )+", block, re.MULTILINE))) for block in blocks
    ]
    assert found == [(GOLDEN / f"{name}.avro").read_bytes() for name in ("watermark", "insert")]
