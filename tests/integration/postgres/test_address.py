"""What an address says of the connection holds; the rest is ours."""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.publisher.postgres.connection import CONNECT_TIMEOUT_S, connect
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database


@pytest.mark.parametrize(("said", "seconds"), [("", CONNECT_TIMEOUT_S), ("connect_timeout=3", 3)])
def test_the_address_says_how_long_an_attempt_may_take(database: Database, said: str, seconds: int) -> None:
    address = f"{database.dsn}{'&' if '?' in database.dsn else '?'}{said}"
    with closing(connect(parse_dsn(address))) as source:
        assert source.info.get_parameters()["connect_timeout"] == str(seconds)
