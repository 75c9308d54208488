"""``headrace snapshot create`` as a process: killed in the middle and run again; an archive in an object store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest
from pyspark.sql import SparkSession

from headrace.archive.files.bases import files_of, read_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new
from headrace.cli.app import main
from headrace.pipeline.bases.making import make_base
from headrace.pipeline.bases.reading import base_frame
from tests import forks
from tests.integration.pipeline.bases.archives import values_of
from tests.integration.pipeline.bases.test_bases import story
from tests.s3 import S3Server
from tests.waiting import wait_until


def command(*words: str) -> list[str]:
    return [*forks.HEADRACE, "snapshot", "create", "--master", "local[2]", *words]


def run(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    done = forks.run(command(*words), capture_output=True, text=True, timeout=300, check=False, env=env)
    return done.returncode, done.stdout, done.stderr


def test_a_job_that_is_killed_leaves_no_base(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "wal"
    told = story(6)
    told.write(archive)
    # Spark's workers have a group of their own: one may still put the file that it was writing under its name.
    process = forks.start(
        command("--wal-dir", str(archive), "--buckets", "60"),  # a task each: there is time to be killed in
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(
            lambda: bool(list(archive.glob("kdb-base-*/*/part-*"))), 120, what="the first file of the base"
        )
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    folder = Folder(str(archive))
    (left,) = read_bases(folder).unsound
    assert not left.finished
    strays = {name for name in files_of(folder, left.path) if "/.tmp-" not in name}
    assert strays
    assert make_base(spark, str(archive)).made
    (base,) = read_bases(folder).sound
    assert not strays & {one.path for one in base.manifest.files}
    assert strays <= set(files_of(folder, base.path))
    assert values_of(base_frame(spark, str(archive), base)) == told.values()
    # Neither of these starts Spark.
    assert main(["snapshot", "create", "--wal-dir", str(archive)]) == 0
    assert "it was there already" in capsys.readouterr().out
    assert main(["snapshot", "create", "--wal-dir", str(archive), "--to-time", "2020-01-01T00:00:00Z"]) == 4


@pytest.mark.soak(sibling="test_a_job_that_is_killed_leaves_no_base")
def test_an_archive_in_an_object_store(tmp_path: Path, s3: S3Server, s3_url: str) -> None:
    told = story(4)
    told.write(tmp_path)
    folder = Folder(s3_url)
    for file in sorted(tmp_path.iterdir()):
        put_new(folder, file.name, [file.read_bytes()])
    code, out, error = run("--wal-dir", s3_url, "--json", env=s3.env)
    assert code == 0, out + error
    made = json.loads(out)
    assert made["created"] is True
    (base,) = read_bases(folder).sound
    assert (base.path, base.manifest.rows) == (made["base"], made["rows"])
    assert set(files_of(folder, base.path)) == {"manifest.json", *(one.path for one in base.manifest.files)}
    store = fsspec.filesystem("s3", **s3.config)
    assert (
        store.info(f"{s3_url}/{base.path}/{base.manifest.files[0].path}")["size"]
        == base.manifest.files[0].size
    )
