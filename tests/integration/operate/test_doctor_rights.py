"""``headrace doctor`` run by a user who may not enter the current folder: it says so, and looks at all else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).parent / "headrace")
RIGHTLESS = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    if os.geteuid() == 0
    else []
)
"""Root may enter every folder by two capabilities; without them the folder's mode holds for root too."""


@pytest.mark.parametrize("named", [False, True])
def test_folder_that_this_user_may_not_enter(tmp_path: Path, named: bool) -> None:
    folder, data = tmp_path / "closed", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    words = ["--data-dir", str(data)] if named else []
    try:
        done = subprocess.run(
            ["sh", "-c", 'chmod 000 . && exec "$@"', "sh", *RIGHTLESS, PROGRAM, "doctor", "--json", *words],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        folder.chmod(0o700)
    assert "Traceback" not in done.stderr, done.stderr
    checks = json.loads(done.stdout)["checks"]
    (found,) = (one for one in checks if one["check"] == "current-folder")
    assert found["verdict"] == "warn"
    assert ("headrace-data" in found["reason"]) is not named
    assert "agent.toml, capture.toml" in found["reason"]
    assert "--data-dir" in found["hint"]
    assert named is any(one["check"] == "fsync" for one in checks), "what is named is looked at"
    assert done.returncode == 0, done.stdout
