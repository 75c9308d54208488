"""The page about Kafka names every word of the sink and its default, and every option of the command, no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from headrace.cli.health_options import HealthOptions
from headrace.cli.pipeline_kafka import kafka_command
from headrace.cli.spark_jobs import SparkOptions
from headrace.pipeline.kafka.sink import UNUSED, Delivery, parse_sink

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "kafka.md").read_text(encoding="utf-8")
HOWTO = (DOCS / "howto" / "kafka.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]*)`")


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_every_word_of_the_sink_and_its_default() -> None:
    cells = [line.split("|") for line in section("Sink URI").splitlines() if line.startswith("| `")]
    shown = {CODE.findall(row[1])[0]: row[2].strip() for row in cells}
    fields = msgspec.structs.fields(Delivery)
    wanted = {
        field.encode_name: "none"
        if field.default is None
        else f"`{msgspec.json.encode(field.default).decode()}`"
        for field in fields
    }
    assert shown == wanted


@pytest.mark.parametrize("word", [word for word in UNUSED if "gssapi" not in word and "oauth" not in word])
def test_every_word_that_is_refused_is_named(word: str) -> None:
    assert f"`{word}`" in section("Sink URI")


def test_every_option_of_the_command() -> None:
    named = set(re.findall(r"`--([a-z-]+)`", section("Command")))
    options = {name.replace("_", "-") for name in inspect.signature(kafka_command).parameters}
    spark = {name.replace("_", "-") for name in SparkOptions.__dataclass_fields__}
    health = {name.replace("_", "-") for name in HealthOptions.__dataclass_fields__}
    assert named - {"help"} == (options - {"spark"}) | spark | health


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", HOWTO, re.DOTALL))
def test_the_files_in_the_guide_are_taken(text: str) -> None:
    assert parse_sink("kafka://h:1/t", text).changefeed.dispatchers
