"""Holds the house rules over src and tests, and shows that each of them bites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.rules import RULES, Module, read_modules

ROOT = Path(__file__).parents[2]
MODULES = read_modules(ROOT / "src") + read_modules(ROOT / "tests", "tests.")
DOC = '"""What it is for."""\n'

BAD = {
    "banned_name": [("headrace.log.utils", DOC)],
    "bare_suppression": [
        ("headrace.a", DOC + "import x  # type: ignore[import]\n"),
        ("tests.a", DOC + "import x  # noqa: F401\n"),
    ],
    "file_too_long": [("tests.a", DOC + "a = 1\n" * 400)],
    "function_too_long": [("headrace.a", DOC + "def f():\n" + "    a = 1\n" * 70)],
    "log_messages": [
        ("headrace.a", DOC + 'logger.info(f"{a} is there")\n'),
        ("headrace.a", DOC + 'self._log.warning("gone: " + a)\n'),
        ("headrace.a", DOC + 'get_logger("x").error(a)\n'),
        ("headrace.a", DOC + 'log.bind(a=a).info("%s is there", a)\n'),
        ("headrace.a", DOC + 'logger.exception("{} is there".format(a))\n'),
        ("headrace.a", DOC + "logger.info()\n"),
    ],
    "loads_pandas": [
        ("headrace.a", DOC + "import pandas as pd\n"),
        ("headrace.a", DOC + "from pandas import DataFrame\n"),
        ("headrace.a", DOC + "a.to_numpy()\n"),
        ("headrace.a", DOC + "pa.array([1])\n"),
        ("headrace.a", DOC + "pc.equal(a, 'put')\n"),
    ],
    "mocks": [
        ("tests.a", DOC + "from unittest.mock import patch\n"),
        ("tests.a", DOC + "from unittest import mock\n"),
    ],
    "module_docstring": [("tests.a", "a = 1\n"), ("headrace.a", '"""' + "line\n" * 41 + '"""\n')],
    "prints": [("headrace.log.a", DOC + "print(1)\n")],
    "public_docstring": [
        ("headrace.a", DOC + "def f(): ...\n"),
        ("headrace.a", DOC + 'class A:\n    """An A."""\n    def f(self): ...\n'),
    ],
    "shadows_stdlib": [("headrace.log.queue", DOC)],
    "skips": [
        ("tests.a", DOC + "import pytest\npytest.skip('later')\n"),
        ("tests.a", DOC + "import pytest\n@pytest.mark.xfail\ndef test(): ...\n"),
    ],
    "sleeps": [
        ("tests.a", DOC + "import time\ntime.sleep(1)\n"),
        ("tests.a", DOC + "from asyncio import sleep\n"),
    ],
    "unfinished": [("headrace.a", DOC + "a = 1  # TO" + "DO later\n")],
}

GOOD = [
    ("headrace.a", DOC + "import x  # type: ignore[import]  # ships no types\n"),
    ("headrace.a", DOC + 'logger.info("it is there", name=f"{a}")\nfuture.exception()\nfault.error(path)\n'),
    ("headrace.a", DOC + "import x  # noqa: F401 the import registers it\n"),
    ("headrace.cli.trace", DOC + "print(1)\n"),
    ("headrace.simple.json", DOC),
    ("headrace.a", DOC + 'class A(Store):\n    """An A."""\n    def put(self): ...\n'),
]


def test_rules_cover_the_whole_tree() -> None:
    names = {module.name for module in MODULES}
    assert {"headrace", "headrace.errors", "tests.conftest", "tests.tidy.test_tidy"} <= names


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_rule(rule: object) -> None:
    assert callable(rule)
    breaches = [f"{module.name}: {breach}" for module in MODULES for breach in rule(module)]
    assert not breaches, "\n" + "\n".join(breaches)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_bites(rule: object) -> None:
    assert callable(rule)
    for name, text in BAD[getattr(rule, "__name__", "")]:
        assert list(rule(Module(name, text))), text


def test_rules_let_good_code_pass() -> None:
    for name, text in GOOD:
        assert not [breach for rule in RULES for breach in rule(Module(name, text))], text


def test_lock_files_hold_no_addresses() -> None:
    locks = sorted(ROOT.glob("requirements*.lock"))
    assert [lock.name for lock in locks] == ["requirements-jvm.lock", "requirements.lock"]
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        assert not re.search(r"://|--(extra-)?index|--find-links| @ ", text), lock.name
        unhashed = re.findall(r"^[a-z0-9][^\n\\]*\n(?! +--hash=)", text, re.MULTILINE)
        assert not unhashed, f"{lock.name}: no hash: {unhashed}"
    assert not (ROOT / "uv.lock").exists(), "uv.lock holds download addresses; the lock is requirements.lock"
