"""``headrace pipeline setup``: find a Java and fetch the jars that Spark needs."""

from __future__ import annotations

import json as json_codec
import sys
from typing import Annotated

from cyclopts import Parameter

from headrace.cli.spark_jobs import check_installed


def setup_command(*, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Find a Java and fetch the jars that Spark needs, once; jobs never fetch anything.

    The jars (20 MB) go to HEADRACE_JARS, else ~/.cache/headrace/jars, and are checked by their SHA-256. For a machine
    without network: copy that folder there and set HEADRACE_JARS to it.

    Parameters
    ----------
    json
        Print one JSON document instead of lines.
    """
    check_installed()
    from headrace.pipeline import jars
    from headrace.pipeline.java import find_java
    from headrace.pipeline.spark_home import spark_home

    def say(line: str) -> None:
        print(f"pipeline: {line}", file=sys.stderr if json else sys.stdout, flush=True)

    java = find_java()
    say(f"Java {java.major} from {java.origin}: {java.home}")
    folder = jars.jars_folder()
    fetched = jars.fetch(folder, java, say=say)
    home = spark_home()
    if json:
        document = {
            "java": {"home": str(java.home), "major": java.major, "origin": java.origin},
            "jars": str(folder),
            "spark_home": str(home) if home is not None else None,
            "fetched": [jar.file for jar in fetched],
            "files": [{"file": jar.file, "size": jar.size, "sha256": jar.sha256} for jar in jars.ALL],
        }
        print(json_codec.dumps(document))
        return
    say(f"{len(jars.ALL)} jars are in {folder}" + ("" if fetched else ", checksums fit: nothing to fetch"))
    if home is not None:
        say(f"Spark's home without zips, for the workers of a cluster too: {home}")
    say("for a machine without network: copy that folder there and set HEADRACE_JARS to it")
