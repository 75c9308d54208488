"""``docs/rfd5.md`` maps RFD 5 to code and tests: each link leads to a file, and each test named is where its link leads."""

from __future__ import annotations

import re

import pytest

from tests.tidy.pages import DOCS, ROOT, TEST, names_in, wrong_links

PAGE = DOCS / "rfd5.md"


def test_every_file_and_test_of_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert wrong_links(text) == []
    assert len(re.findall(r"\[`test_", text)) > 50, "the page is there to name tests"


def test_every_scenario_is_on_the_page() -> None:
    named = set(TEST.findall(PAGE.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "tests" / "scenarios").glob("test_rfd5_*.py")):
        missing = {name for name in names_in(path) if name.startswith("test_")} - named
        assert not missing, f"{path.name}: {missing}"


@pytest.mark.parametrize(
    "text",
    [
        "[`test_x`](../tests/no/such/file.py)",
        "[`test_no_such_test`](../tests/tidy/test_rfd5_page.py)",
        "[`listener/seen.py`](../src/headrace/listener/buffer.py)",
        "[x](https://somewhere.example/page)",
        "`test_rfd5_page`",
    ],
)
def test_the_check_bites(text: str) -> None:
    assert wrong_links(text)


def test_the_check_lets_right_links_pass() -> None:
    right = "[`test_the_check_bites`](../tests/tidy/test_rfd5_page.py) [`seen.py`](../src/headrace/listener/seen.py)"
    assert wrong_links(f"{right} [here](howto/listen.md#exactly-once)") == []
