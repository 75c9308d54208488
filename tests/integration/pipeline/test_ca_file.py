"""``headrace pipeline tables --ca-file``: driver and workers trust the authority of that file, and no other.

What is refused of such a file, and other commands: ``tests/integration/access/test_ca_file.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli.app import main
from headrace.pipeline.tables.job import read_tables
from tests.certificates import Authority
from tests.identity import Issuer
from tests.secured import secured
from tests.servers import Feed


@pytest.mark.usefixtures("shared_spark")
def test_tables_trust_the_authority_of_their_file_and_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TLS_CA", str(Authority(tmp_path, "other").file))
    to, token = str(tmp_path / "tables"), tmp_path / "token"
    with secured(tmp_path / "server", Issuer(), tls=True) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        assert feed.post({"changes": {"n": 1}}).status_code == 200
        token.write_text(server.issuer.token())
        assert server.authority is not None
        words = ["--server", server.url, "--token-file", str(token), "--ca-file", str(server.authority.file)]
        assert main(["pipeline", "tables", "--feed", "shop", "--once", "--to", to, *words]) == 0
    assert read_tables(spark, to)[()].count() == 1
