"""What a client trusts: without TLS nobody, which costs nothing; else the authorities of the file or of the machine."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headrace.client.tls import context_for
from headrace.errors import ConfigInvalid
from tests.certificates import Authority


def test_without_tls_no_authority_is_read() -> None:
    context = context_for("http://127.0.0.1:8470")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 0


def test_with_tls_the_authorities_are_those_of_the_file_or_the_public_ones(tmp_path: Path) -> None:
    own = context_for("https://log.example", Authority(tmp_path).file)
    public = context_for("https://log.example")
    assert own.cert_store_stats()["x509_ca"] == 1
    assert public.cert_store_stats()["x509_ca"] > 1
    assert {one.verify_mode for one in (own, public)} == {ssl.CERT_REQUIRED}
    with pytest.raises(ConfigInvalid, match="--ca-file"):
        context_for("https://log.example", tmp_path / "none")
