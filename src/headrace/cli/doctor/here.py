"""What the doctor looks at in the current folder where nothing is named; its user may be one who can't enter that folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace.cli.doctor.finding import Asked, Finding, warn

DATA_DIR: Final = Path("headrace-data")
AGENT_CONFIG: Final = Path("agent.toml")
CAPTURE_CONFIG: Final = Path("capture.toml")


def here(name: Path) -> Path | None:
    """Return ``name`` if it is there; None if it is not, or if this user may not enter the folder."""
    try:
        return name if name.exists() else None
    except PermissionError:
        return None


def check_current_folder(asked: Asked) -> list[Finding]:
    """Say what was not looked for, where this user may not enter the folder in which it would stand."""
    named = {
        DATA_DIR: asked.data_dir,
        AGENT_CONFIG: asked.agent_config,
        CAPTURE_CONFIG: asked.capture_config,
    }
    closed = [str(name) for name, given in named.items() if given is None and _is_closed(name)]
    if not closed:
        return []
    return [
        warn(
            f"this user may not enter the current folder, so it was not looked for {', '.join(closed)}",
            "Run it in a folder that this user may enter (cd /), and name what there is to look at: --data-dir, "
            "--agent-config, --capture-config.",
        )
    ]


def _is_closed(name: Path) -> bool:
    try:
        name.exists()
    except PermissionError:
        return True
    return False
