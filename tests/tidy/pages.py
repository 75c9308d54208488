"""Pages of ``docs/`` that name code and tests: each link leads to a file, and each test named is where its link leads."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

TEST = re.compile(r"\btest_\w+\b(?!\.py)")
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the functions that a file defines."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def wrong_links(text: str) -> list[str]:
    """Return what is wrong with the links and the names of tests in ``text``, a page in ``docs/``."""
    wrong = []
    for link in _LINK.finditer(text):
        name, target = link["text"].strip("`"), DOCS / link["target"]
        if "://" in link["target"] or not target.is_file():
            wrong.append(f"{link['target']}: no such file")
        elif name.startswith("test_") and name not in names_in(target):
            wrong.append(f"{link['target']}::{name}: no such test")
        elif target.is_relative_to(DOCS / "../src/headrace") and not link["target"].endswith(f"/{name}"):
            wrong.append(f"{name}: leads to {link['target']}")
    unlinked = TEST.findall(_LINK.sub("", re.sub(r"`[^`]*\*[^`]*`", "", text)))
    return wrong + [f"{name}: a test without a link to its file" for name in unlinked]
