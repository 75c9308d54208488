"""The pages about capture name every setting and its default, every word of a changefeed file, every command, no other."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headrace.capture.changefeed import Changefeed, parse_changefeed, taken_words
from headrace.capture.settings import CaptureSettings, load_capture_settings
from headrace.cli.capture import app

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "capture.md").read_text(encoding="utf-8")
HOWTO = (DOCS / "howto" / "capture.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]*)`")


def rows(section: str) -> dict[str, str]:
    """The first two columns of the tables under a heading of the second level."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return {CODE.findall(row[1])[0]: row[2].strip() for row in cells}


def shown(field: msgspec.structs.FieldInfo) -> str:
    """A setting's default as the page writes it."""
    if field.required:
        return "needed"
    if field.default is None:
        return "none"
    return f"`{msgspec.json.encode(field.default).decode()}`"


def test_every_setting_and_its_default() -> None:
    fields = msgspec.structs.fields(CaptureSettings)
    assert rows("capture.toml") == {field.encode_name: shown(field) for field in fields}


def test_every_word_of_a_changefeed_file() -> None:
    assert sorted(rows("Changefeed files")) == sorted(taken_words())


@pytest.mark.parametrize(
    ("word", "default"), [(word, CODE.findall(cell)) for word, cell in rows("Changefeed files").items()]
)
def test_the_defaults_of_a_changefeed_file(word: str, default: list[str]) -> None:
    if "dispatchers" not in word and "column-selectors" not in word:
        assert parse_changefeed(f"{word} = {default[0]}") == Changefeed()


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", HOWTO, re.DOTALL))
def test_the_settings_in_the_guide_are_taken(tmp_path: Path, text: str) -> None:
    path = tmp_path / "capture.toml"
    path.write_text(text)
    if text.startswith("# changefeed"):
        assert parse_changefeed(text).selectors
    else:
        assert load_capture_settings(path).find_selection().captures("shop", "orders")


def test_every_command() -> None:
    named = [command.split()[0] for command in rows("Commands")]
    assert sorted(named) == sorted(name for name in app if not name.startswith("-"))
