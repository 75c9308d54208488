"""An archive in an object store: listed, planned, and a gap of it accepted, as in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.cli.app import main
from headrace.wire.base_manifest import base_folder
from tests.archive_model import Append, History, write_archive


def test_an_archive_on_s3_is_listed_and_planned(
    s3_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History([Append(7, at, (("", False),) * 2) for at in range(8)])
    lsns = [one.lsn for one in history.entries]
    bases = [history.entries[:2], history.entries[:14]]
    write_archive(tmp_path / "wal", history.segments([2, 4, 6]), lost=[2], bases=bases)
    store, root = fsspec.url_to_fs(s3_url)
    for path in (tmp_path / "wal").rglob("*"):
        if path.is_file():
            store.pipe_file(f"{root}/{path.relative_to(tmp_path / 'wal')}", path.read_bytes())

    archive = Archive.read(s3_url)
    assert [(one.first, one.last) for one in archive.windows] == [(lsns[0], lsns[7]), (lsns[13], lsns[15])]
    found = plan(archive, Asked(to_lsn=lsns[5]))
    assert (found.target_lsn, found.after_lsn) == (lsns[5], lsns[1])
    assert plan(
        archive, Asked(to_lsn=lsns[15]), found.base_url.replace(str(lsns[1]), str(lsns[13]))
    ).base_url == (f"{s3_url.rstrip('/')}/{base_folder(lsns[13])}")

    assert (
        main(["wal", "gap", "ack", "--wal-dir", s3_url, "--all", "--reason", "a bucket was lost", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["accepted"] == 1
    assert len(Archive.read(s3_url).windows) == 1
