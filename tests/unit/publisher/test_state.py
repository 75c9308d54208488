"""Objects of the application's own query as lines of a snapshot."""

from __future__ import annotations

from decimal import Decimal

import pytest
from psycopg.types.range import Range

from headrace.publisher.state import object_line


@pytest.mark.parametrize("changes", ['{"a":1}', b'{"a":1}', ' {"a":1}\n'], ids=repr)
def test_object_in_any_form_is_one_line(changes: object) -> None:
    assert object_line("k", changes) == b'{"key":"k","changes":{"a":1}}\n'


@pytest.mark.parametrize(
    "changes",
    [Range(1, 2), {"a": 1}, Decimal(1), None, "[1]", "{", "\ud800", b"\xff", {1, 2}, object()],
    ids=lambda one: repr(one).partition(" object at")[0],
)
def test_what_is_no_object_is_named(changes: object) -> None:
    with pytest.raises(ValueError, match=r"changes of 'k' (are no JSON object|must be JSON as text)"):
        object_line("k", changes)
