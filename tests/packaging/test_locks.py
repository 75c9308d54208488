"""The lock files and pyproject.toml agree: a forgotten `make lock` is found here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
ALL_EXTRAS = [text for extra, texts in EXTRAS.items() if extra != "all" for text in texts]


def locked(name: str) -> dict[str, list[str]]:
    """Return the versions that a lock names of each package (more than one where markers tell them apart)."""
    versions: dict[str, list[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([^ ;\\]+)", (ROOT / name).read_text(), re.MULTILINE):
        versions.setdefault(canonicalize_name(package), []).append(version)
    return versions


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        (
            "requirements.lock",
            [*PROJECT["project"]["dependencies"], *ALL_EXTRAS, *PROJECT["dependency-groups"]["dev"]],
        ),
        ("requirements-jvm.lock", PROJECT["dependency-groups"]["jvm"]),
    ],
    ids=["main", "jvm"],
)
def test_lock_fits_what_the_project_asks_for(lock: str, wanted: list[str]) -> None:
    versions = locked(lock)
    for requirement in map(Requirement, wanted):
        found = versions.get(canonicalize_name(requirement.name))
        assert found, f"{requirement.name} is not in {lock}: run make lock"
        assert all(version in requirement.specifier for version in found), f"{requirement}, locked: {found}"


def test_extra_all_is_every_extra() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.name == "headrace"
    assert everything.extras == EXTRAS.keys() - {"all"}


def test_core_asks_for_neither_spark_nor_a_driver() -> None:
    core = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    optional = {Requirement(text).name for text in ALL_EXTRAS}
    assert core.isdisjoint(optional)
