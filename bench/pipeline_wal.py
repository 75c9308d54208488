"""Reading a backup: KWAL segments through ``format("headrace.wal")`` to Spark's noop sink, on local[2].

The bare limit is Spark reading the same rows, with all columns, from uncompressed Parquet. ``few-columns`` asks for three.
Processor time is that of the JVM and all its Python workers.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.support.harness import Bench, Figures, arguments, publish
from bench.support.process_tree import cpu_s_of_tree
from bench.support.segments import VALUE_BYTES, write_segments
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.wal import FORMAT
from headrace.pipeline.wal.source import register

ARMS = ("parquet", "wal", "few-columns")
FEW = "sequence_id BIGINT, key BINARY, value BINARY"
CORES = 2


def _frame(spark: SparkSession, arm: str, folder: Path, parquet: Path) -> DataFrame:
    if arm == "parquet":
        return spark.read.parquet(str(parquet))
    reader = spark.read.format(FORMAT)
    return (reader.schema(FEW) if arm == "few-columns" else reader).load(str(folder))


def main() -> None:
    """Write segments, and the same as Parquet; read both by turns, and print what was found."""
    parser = arguments(__doc__, seconds=0, rounds=5)
    parser.add_argument(
        "--entries", type=int, default=4_000_000, help="entries in all (default: %(default)s)"
    )
    parser.add_argument(
        "--segment-mb", type=int, default=128, help="size of a segment (default: %(default)s)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        folder, parquet = Path(temporary) / "wal", Path(temporary) / "parquet"
        folder.mkdir()
        write_segments(folder, given.entries, given.segment_mb << 20)
        settings = SessionSettings(
            log_file=Path(temporary) / "spark.log", name="bench", master=f"local[{CORES}]"
        )
        spark = open_session(settings)
        register(spark)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        jvm = gateway.proc.pid
        whole = spark.read.format(FORMAT).load(str(folder))
        whole.write.option("compression", "none").parquet(str(parquet))
        assert spark.read.parquet(str(parquet)).count() == given.entries

        def measure(arm: str) -> Figures:
            frame = _frame(spark, arm, folder, parquet)
            begun, begun_cpu = time.perf_counter(), cpu_s_of_tree(jvm)
            frame.write.format("noop").mode("overwrite").save()
            took_s, cpu_s = time.perf_counter() - begun, cpu_s_of_tree(jvm) - begun_cpu
            return {
                "entries/s": given.entries / took_s,
                "entries/s/core": given.entries / took_s / CORES,
                "entries/cpu-s": given.entries / cpu_s,
            }

        for arm in ARMS:
            measure(arm)  # the JVM compiles what it runs, workers start
        bench = Bench(
            "pipeline_wal",
            ARMS,
            {
                "entries": given.entries,
                "value-bytes": VALUE_BYTES,
                "segment-mb": given.segment_mb,
                "master": f"local[{CORES}]",
            },
        )
        bench.run(measure, given.rounds)
        spark.stop()
    publish([bench], ["entries/s", "entries/s/core", "entries/cpu-s"], given.json)


if __name__ == "__main__":
    main()
