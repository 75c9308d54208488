"""``docs/rfc010.md`` maps each numbered section of RFC-010 to code and tests that are there."""

from __future__ import annotations

import re

from tests.tidy.pages import DOCS, ROOT, TEST, names_in, wrong_links

PAGE = DOCS / "rfc010.md"
SECTIONS = [*"123456789", "2.1", "2.2", "4.1", "4.2", "4.3", "4.4", "5.1", "5.2", "5.3", "6.1"]
INTEROPERABILITY = ("test_grpcurl", "test_java_client", "test_rfc_client")


def test_every_file_and_test_of_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert wrong_links(text) == []
    assert len(re.findall(r"\[`test_", text)) > 50, "the page is there to name tests"


def test_every_numbered_section_is_on_the_page() -> None:
    headings = re.findall(r"^#{2,3} ([0-9.]+?)\.? ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == sorted(SECTIONS)


def test_a_link_within_the_page_leads_to_a_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = re.findall(r"^#{2,3} (.+)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors


def test_everything_that_shows_interoperability_is_on_the_page() -> None:
    named = set(TEST.findall(PAGE.read_text(encoding="utf-8")))
    for module in INTEROPERABILITY:
        path = ROOT / "tests" / "integration" / "grpc" / f"{module}.py"
        missing = {name for name in names_in(path) if name.startswith("test_")} - named
        assert not missing, f"{path.name}: {missing}"
