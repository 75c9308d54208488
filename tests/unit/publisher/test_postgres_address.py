"""A PostgreSQL DSN that can't be read is refused without a word of it: what is taken for a host may end a password."""

from __future__ import annotations

import pytest

from headrace.errors import DsnInvalid, HeadraceError
from headrace.publisher.postgres.connection import connect
from headrace.runtime.dsn import parse_dsn


@pytest.mark.parametrize("password", ["100%secret", "pa ss-secret", "secr@et"])
def test_no_part_of_a_password_is_told(password: str) -> None:
    with pytest.raises(DsnInvalid) as refused:
        connect(parse_dsn(f"postgresql://user:{password}@127.0.0.1:1/shop"))
    told = f"{refused.value.detail} {refused.value.advice}"
    assert "secret" not in told
    assert "et@" not in told
    assert "percent" in told or "%40" in told
    assert refused.value.__cause__ is None


def test_an_address_that_is_read_otherwise_tells_no_password_either() -> None:
    """A slash ends the host: what follows is taken for the database's name."""
    with pytest.raises(HeadraceError) as refused:
        connect(parse_dsn("postgresql://user:a/b@secret@127.0.0.1:1/shop"))
    assert "secret" not in f"{refused.value.detail} {refused.value.advice}"
