"""What a program says that meets a newer format: the file, both versions, and where to look."""

from __future__ import annotations

import pytest

from headrace import __version__
from headrace.errors import FormatTooNew
from headrace.wire import versions
from headrace.wire.versions import FormatVersion, check_readable


def test_newer_written_as_alone_does_no_harm() -> None:
    check_readable("the mark", 1, FormatVersion(1, 1))
    check_readable("the mark", 1, FormatVersion(3, 2))


def test_newer_readable_from_is_refused() -> None:
    with pytest.raises(FormatTooNew) as refusal:
        check_readable("data/mark", 3, FormatVersion(2, 1))
    assert "data/mark" in refusal.value.detail
    assert "version 3" in refusal.value.detail
    assert f"Headrace {__version__}) knows up to 2" in refusal.value.detail
    assert "docs/reference/compatibility.md" in refusal.value.advice
    assert refusal.value.exit_code == 3


def test_every_format_can_read_what_it_writes() -> None:
    formats = {name: kind for name, kind in vars(versions).items() if isinstance(kind, FormatVersion)}
    assert {"FRAME", "SEGMENT", "INDEX", "MARK", "METADATA"} <= set(formats)
    for name, kind in formats.items():
        assert 1 <= kind.readable_from <= kind.written_as, name
