"""The tutorial's blocks, run in their order in an empty folder, do what the page says."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_block_of_the_tutorial_runs(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.DOTALL
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PORT": str(port),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = "set -eum\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{(tmp_path / 'up.log').read_text()}"
    entries = [json.loads(line) for line in (tmp_path / "changes.ndjson").read_text().splitlines()]
    assert [entry.get("control", entry["op"]) for entry in entries] == [
        "schema", "copy-begin", "put", "put", "copy-end", "put", "delete",
    ]  # fmt: skip
    assert [entry["sequence-id"] for entry in entries] == list(range(1, 8))
    update, delete = entries[-2:]
    assert (update["changes"]["state"], update["changed"]) == ("paid", ["state"])
    assert update["tx"] == delete["tx"]
    assert (update["tx-last"], delete["tx-last"]) == (False, True)
    assert "orders: detached" in done.stdout
