"""A process of the demo that does not do its part is named, with its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.cli.demo.processes import Child
from headrace.errors import DemoFailed


def child(folder: Path, program: str) -> Child:
    return Child("agent", folder, ["-c", program], os.environ)


async def test_one_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    agent = child(tmp_path, "import sys; sys.exit('no database')")
    await agent.start()
    with pytest.raises(DemoFailed, match="agent did not say that it is ready") as failed:
        await agent.first_document()
    assert str(tmp_path / "agent.log") in failed.value.detail
    with pytest.raises(DemoFailed, match="exit code 1"):
        await agent.finish()
    assert "no database" in (tmp_path / "agent.log").read_text()


async def test_one_that_ends_by_itself(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = child(tmp_path, f"print('{{}}', flush=True); open({str(gate)!r}).read()")
    await agent.start()
    assert await agent.first_document() == {}
    agent.check()
    gate.write_text("")  # a pipe: it is opened when the process opens it, too
    assert await agent.finish() == ""
    with pytest.raises(DemoFailed, match="ended by itself"):
        agent.check()


async def test_one_that_was_never_started(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="never started"):
        child(tmp_path, "").check()
