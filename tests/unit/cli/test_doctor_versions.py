"""What ``headrace doctor`` says of the bytecode of what it has loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.cli.doctor.finding import Verdict
from headrace.cli.doctor.versions import check_bytecode


@pytest.mark.parametrize(
    ("forbidden", "why"), [(True, "PYTHONDONTWRITEBYTECODE is set"), (False, "it can't be written")]
)
def test_a_module_without_bytecode_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, forbidden: bool, why: str
) -> None:
    module = ModuleType("never_compiled")
    vars(module)["__cached__"] = str(tmp_path / "never_compiled.pyc")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    asked: Any = None  # it looks at nothing that is asked for
    (found,) = check_bytecode(asked)
    assert found.verdict is Verdict.WARN
    assert why in found.reason
    assert "-m compileall" in found.hint
