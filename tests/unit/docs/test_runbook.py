"""The runbook has a page for each code, no page too many, and each page can be followed: its links and commands exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from cyclopts import App

import headrace
from headrace.cli.app import root
from headrace.errors import HeadraceError, every_error
from headrace.errors.problem import problem_document
from headrace.publisher.attach.finding import FindingKind
from headrace.runtime.runbook import runbook_codes, runbook_folder, runbook_page
from headrace.server.retention.loop import BYTES_HIGH, PLACE_LOST
from tests.tidy.pages import ROOT

ERRORS = {kind.code: kind for kind in every_error() if kind.__module__.startswith("headrace.errors")}
CODES = {*ERRORS, *FindingKind, BYTES_HIGH, PLACE_LOST}
"""Errors; what the agent's alarm says of an attached table; alarms of retention."""

ALERTS = sorted(f"alerts/{path.stem}" for path in (runbook_folder() / "alerts").glob("*.md"))
"""Pages of Prometheus' alerts that no code stands behind; tests/integration/deploy holds them to the rules."""

SECTIONS = ["## What it means", "## What to look at", "## What to do"]


def read(name: str) -> str:
    """The page of a code or an alert."""
    return (runbook_folder() / f"{name}.md").read_text(encoding="utf-8")


def kinds_below(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    """``kind``, and every class below it that was imported."""
    yield kind
    for child in kind.__subclasses__():
        yield from kinds_below(child)


_COMMAND = re.compile(r"`headrace ([^`]+)`")


def test_each_code_has_a_page_and_each_page_a_code() -> None:
    assert set(runbook_codes()) == CODES
    assert ALERTS


def test_no_error_of_any_module_is_outside_the_tree() -> None:
    """One that is defined elsewhere would have no page, no row in the reference, and no name at a client."""
    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if not module.name.endswith("__main__"):  # it runs the program
            importlib.import_module(module.name)
    ours = {kind for kind in kinds_below(HeadraceError) if kind.__module__.split(".")[0] == "headrace"}
    assert {kind.code for kind in ours} == set(ERRORS)
    outside = [
        kind for kind in ours if "code" in vars(kind) and not kind.__module__.startswith("headrace.errors")
    ]
    assert not outside, f"define {outside} in headrace.errors, and write a page for each"


def test_no_alarm_is_raised_under_a_code_without_a_page() -> None:
    """Whoever raises one names an error's class, or one of the two of retention: a literal would be seen here."""
    raised = [
        found
        for path in (ROOT / "src" / "headrace").rglob("*.py")
        for found in re.findall(
            r"raise_alarm\(\s*\"([\w-]+)\"|_try_alarm\(\s*\"([\w-]+)\"", path.read_text("utf-8")
        )
    ]
    assert not raised, f"name these codes as constants, and give them to this test: {raised}"


@pytest.mark.parametrize("code", sorted(CODES))
def test_page_has_its_parts_and_something_in_each(code: str) -> None:
    page = runbook_page(code)
    assert page is not None
    assert page.startswith(f"# `{code}`\n")
    assert [line for line in page.splitlines() if line.startswith("## ")] == SECTIONS
    means, look, do = (part.partition("\n## ")[0] for part in re.split("|".join(SECTIONS), page)[1:])
    assert len(means.split()) > 10, "a page that says no more than the error's title helps nobody"
    assert look.strip().startswith("- ")
    assert do.strip().startswith("- ")
    assert "\nSee also: [" in do


@pytest.mark.parametrize("name", ALERTS)
def test_page_of_an_alert_has_the_same_parts(name: str) -> None:
    page = read(name)
    assert page.startswith("# Alert: ")
    assert [line for line in page.splitlines() if line.startswith("## ")] == SECTIONS


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_page_says_more_than_the_hint(code: str) -> None:
    page = " ".join((runbook_page(code) or "").split())
    assert len(page) > 2 * len(ERRORS[code].hint)


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_problem_documents_point_to_the_page(code: str) -> None:
    document = problem_document(ERRORS[code]())
    assert document["type"] == f"/runbook/{code}"
    assert document["code"] == code


def test_the_index_names_every_page() -> None:
    index = (runbook_folder() / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(((?:alerts/)?[a-z-]+)\.md\)", index)) == {*CODES, *ALERTS}


@pytest.mark.parametrize(
    "code", ["", "README", "../../README", "no-such-code", "feed-owned.md", "FEED-OWNED", "a" * 300]
)
def test_what_is_no_code_has_no_page(code: str) -> None:
    assert runbook_page(code) is None


@pytest.mark.parametrize("code", [*sorted(CODES), *ALERTS])
def test_commands_of_a_page_exist_with_their_options(code: str) -> None:
    for said in _COMMAND.findall(" ".join(read(code).split())):
        app: App = root()
        words = said.split()
        while words and re.fullmatch(r"[a-z]+", words[0]) and words[0] in app:
            app = app[words.pop(0)]
        if words and re.fullmatch(r"[a-z]+", words[0]):
            assert app.default_command is not None, f"headrace {said}: there is no {words[0]}"
        known = {"--help", "--version"}
        if app.default_command is not None:
            known |= {name for argument in app.assemble_argument_collection() for name in argument.names}
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in known, f"headrace {said}: there is no {option}"
