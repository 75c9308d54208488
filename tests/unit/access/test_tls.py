"""TLS files: what is refused, in which words, and what becomes of files that change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from headrace.access import tls
from headrace.access.minting import new_key
from headrace.access.tls import Tls, TlsSettings, load_tls, tls_settings
from headrace.errors import ConfigInvalid
from tests.certificates import Authority


def test_three_options_together(tmp_path: Path) -> None:
    assert tls_settings(None, None, None) is None
    assert tls_settings(tmp_path, tmp_path, None) == TlsSettings(cert=tmp_path, key=tmp_path)
    for cert, key, ca, missing in (
        (tmp_path, None, None, "--tls-key"),
        (None, tmp_path, None, "--tls-cert"),
        (None, None, tmp_path, "--tls-cert"),
    ):
        with pytest.raises(ConfigInvalid, match=missing):
            tls_settings(cert, key, ca)


def test_good_files_are_loaded_and_never_printed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    files = load_tls(TlsSettings(cert=pair.cert, key=pair.key, client_ca=authority.file))
    assert files.ends_at > datetime.now(UTC)
    assert "PRIVATE" not in repr(files)


def test_each_mistake_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, other = authority.sign("server"), authority.sign("other")
    text = tmp_path / "text"
    text.write_text("nothing of the kind")
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        new_key("ES256").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    )
    huge = tmp_path / "huge"
    huge.write_bytes(b"x" * (tls.FILE_BYTES_MAX + 1))
    for cert, key, ca, said in (
        (tmp_path / "none", good.key, None, "--tls-cert .*none: can't be read"),
        (tmp_path, good.key, None, "--tls-cert .* can't be read"),
        (good.cert, tmp_path / "none", None, "--tls-key .*none: can't be read"),
        (good.cert, good.key, tmp_path / "none", "--tls-client-ca .*none: can't be read"),
        (text, good.key, None, "--tls-cert .*text: holds no certificate"),
        (huge, good.key, None, "--tls-cert .*huge: is no PEM"),
        (good.cert, text, None, "--tls-key .*text: holds no private key"),
        (good.cert, good.cert, None, "--tls-key .* holds no private key"),
        (good.cert, locked, None, "--tls-key .*locked.key: has a passphrase"),
        (good.cert, other.key, None, "--tls-key .*other.key: is not the key"),
        (good.cert, good.key, text, "--tls-client-ca .*text: holds no certificate"),
    ):
        with pytest.raises(ConfigInvalid, match=said):
            load_tls(TlsSettings(cert=cert, key=key, client_ca=ca))
    with pytest.raises(ConfigInvalid, match="expired on"):
        load_tls(TlsSettings(cert=good.cert, key=good.key), now=datetime.now(UTC) + timedelta(days=2))


def test_changed_files_are_taken_if_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LOOK_S_MIN", 0.0)
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    used = Tls(TlsSettings(cert=pair.cert, key=pair.key))
    first = used.files
    assert not used.refresh()
    pair.key.write_text("half a key")
    assert not used.refresh()
    pair.key.unlink()
    assert not used.refresh()
    assert used.files is first, "wrong files change nothing"
    authority.sign("server", days=1.5)
    assert used.refresh()
    assert used.files.ends_at > first.ends_at
