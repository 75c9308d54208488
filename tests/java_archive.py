"""``python -m tests.java_archive`` writes the archive of :mod:`tests.java_classes`, unless it is there.

``scripts/test`` calls it. A Spark does what tests do, and writes down at its end which classes that took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from headrace.pipeline.session import SessionSettings, open_session, stop_session
from tests.java_classes import OPTIONS, QUICK, archive

_WARM_UP: Final = "--warm-up"
_S_MAX: Final = 300


def make_archive(path: Path) -> None:
    """Write the archive. It is there whole, or not at all where this Java can't write one: that is said on stderr."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        options = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={made}"))
        command = [sys.executable, "-m", "tests.java_archive", _WARM_UP, folder]
        try:
            done = subprocess.run(command, env={**os.environ, OPTIONS: options}, timeout=_S_MAX, check=False)
        except subprocess.TimeoutExpired:  # a busy machine
            done = None
        if done is not None and done.returncode == 0 and made.is_file():
            made.replace(path)
        else:
            sys.stderr.write(
                "test: this Java wrote no archive of classes in time; each start of Spark takes longer\n"
            )


def _warm_up(folder: Path) -> None:
    spark = open_session(
        SessionSettings(log_file=folder / "log", master="local[2]", short_lived=True, kafka=True)
    )
    gateway: Any = spark.sparkContext._gateway
    table, copied = str(folder / "table"), str(folder / "copied")
    spark.range(100).selectExpr("id", "cast(id as string) as v").write.format("delta").save(table)
    changed = spark.range(50, 150).mapInArrow(lambda batches: batches, "id long").selectExpr("id", "'x' as v")
    changed.createOrReplaceTempView("changed")
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING changed c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    stream = spark.readStream.format("delta").load(table).writeStream.format("parquet")
    stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    stream.start(copied).awaitTermination()
    assert spark.read.parquet(copied).groupBy("v").count().orderBy("v").toArrow().num_rows == 51
    stop_session(spark)
    gateway.proc.stdin.close()
    gateway.proc.wait(_S_MAX)


if __name__ == "__main__":
    if sys.argv[1:2] == [_WARM_UP]:
        _warm_up(Path(sys.argv[2]))
    elif not archive().is_file():
        make_archive(archive())
