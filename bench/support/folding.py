"""Spark alone folds rows of Parquet to each key's newest value: a process of its own, as a restore is. Used by benches.

``python -m bench.support.folding FROM OUT MASTER`` prints ``seconds``, without Java's start, and ``rows``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.session import SessionSettings, open_session, stop_session


def main() -> None:
    """Fold, write Parquet, and say how long it took."""
    folder, out, master = sys.argv[1:]
    spark = open_session(SessionSettings(log_file=Path(f"{out}.log"), name="bench", master=master))
    begun = time.perf_counter()
    rows = spark.read.parquet(folder).where("control IS NULL")
    newest = F.max_by(F.struct("op", "value", "lsn", "committed_at"), "sequence_id").alias("newest")
    last = rows.groupBy("key").agg(newest, F.max("sequence_id").alias("sequence_id"))
    states = last.where("newest.op != 'delete'").select("key", "sequence_id", "newest.*")
    states.write.option("compression", "zstd").parquet(out)
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": seconds, "rows": spark.read.parquet(out).count()}))
    stop_session(spark)


if __name__ == "__main__":
    main()
