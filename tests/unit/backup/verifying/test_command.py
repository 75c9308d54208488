"""Encrypted archives, and the command: its exit codes, and what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.archive.files.encryption import encrypt
from headrace.cli.app import main
from headrace.errors import ArchiveUnavailable, IdentityNeeded
from headrace.wire.kwal_manifest import encode_manifest
from tests.identities import age_identity
from tests.small_archives import Small, of, only


def encrypted(small: Small, recipient: str) -> Path:
    """Encrypt the third segment."""
    found = encrypt([small.file(2).read_bytes()], [recipient])
    path = small.folder / small.segments[2].name.encrypted
    path.write_bytes(b"".join(found.pieces))
    small.manifest(2).write_bytes(encode_manifest(small.manifests[2].with_encryption(found.told)))
    small.file(2).unlink()
    return path


def test_encrypted_segments_are_checked_without_a_key_and_read_with_one(small: Small, tmp_path: Path) -> None:
    path = encrypted(small, age_identity(tmp_path / "key"))
    found = of(small.folder)
    assert (found.findings, found.unread, found.entries) == ([], 1, 27)
    found = of(small.folder, identity=str(tmp_path / "key"))
    assert (found.findings, found.unread, found.entries) == ([], 0, 36)
    age_identity(tmp_path / "other")
    with pytest.raises(IdentityNeeded, match=r"no identity in .*other"):
        of(small.folder, identity=str(tmp_path / "other"))
    torn = bytearray(path.read_bytes())
    torn[-20] ^= 1
    path.write_bytes(torn)
    for identity in ("", str(tmp_path / "key")):
        one = only(of(small.folder, identity=identity))
        assert (one.code, one.file) == ("segment-corrupt", path.name)


def test_the_command_exits_with_3_and_lists_everything(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["wal", "verify", "--wal-dir", str(small.folder)]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("all whole: 36 entries and 18 rows in 4 segments and 1 bases, ")
    torn = bytearray(small.file(0).read_bytes())
    torn[100] ^= 4
    small.file(0).write_bytes(torn)
    small.manifest(2).write_bytes(b"{}")
    assert main([*words, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["whole"] is False
    assert document["code"] == document["findings"][0]["code"]
    assert {(one["code"], one["file"]) for one in document["findings"]} >= {
        ("segment-corrupt", small.file(0).name),
        ("segment-corrupt", small.manifest(2).name),
    }
    assert next(one["byte"] for one in document["findings"] if one["file"] == small.file(0).name) == 100
    assert main(words) == 3
    assert f"segment-corrupt: {small.file(0).name} at byte 100" in capsys.readouterr().out


def test_the_command_where_there_is_no_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["wal", "verify", "--wal-dir", str(tmp_path / "empty")]) == ArchiveUnavailable.exit_code == 4
    assert "holds no KWAL segment" in capsys.readouterr().err
    assert main(["wal", "verify", "--wal-dir", str(tmp_path / "nowhere"), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["code"] == "archive-unavailable"
    assert main(["wal", "verify", "--wal-dir", str(tmp_path), "--workers", "0"]) == 2


def test_the_page_shows_what_the_command_prints(small: Small) -> None:
    page = (Path(__file__).parents[4] / "docs" / "howto" / "verify-a-backup.md").read_text(encoding="utf-8")
    block = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert block is not None
    shown = json.loads(block[1])
    torn = bytearray(small.file(0).read_bytes())
    torn[100] ^= 4
    small.file(0).write_bytes(torn)
    document = of(small.folder).document()
    assert list(shown) == list(document)
    assert list(shown["findings"][0]) == list(document["findings"][0])
    for code in (
        "segment-corrupt",
        "segment-gap",
        "segments-overlap",
        "base-corrupt",
        "archive-unavailable",
        "format-too-new",
    ):
        assert f"| `{code}` |" in page
