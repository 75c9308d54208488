"""What ``deploy/`` says can be done: units call commands that exist, and the container's steps make a Headrace that runs."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from headrace.cli.app import root
from tests.scale import chosen

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
LOCK = ROOT / "deploy" / "container" / "requirements.lock"
PROGRAM = "/opt/headrace/bin/headrace"

VALUES = {
    "STATE_DIRECTORY": "/var/lib/headrace",
    "HEADRACE_ARCHIVE": "/archive",
    "HEADRACE_FEED": "vmapi::vm",
    "HEADRACE_SERVE_OPTIONS": "--retention 7d --auth-jwks file:///etc/headrace/jwks.json",
    "HEADRACE_BACKUP_OPTIONS": "--segment-time 10m --token-file /etc/headrace/token",
    "HEADRACE_PIPELINE_OPTIONS": "--memory 4g --archive /archive",
}
"""What a unit's environment may hold."""

HARDENED = (
    "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces",
    "RestrictSUIDSGID", "ProtectKernelTunables", "ProtectKernelModules", "ProtectControlGroups", "LockPersonality",
)  # fmt: skip


def service(path: Path) -> configparser.SectionProxy:
    """The section of the service of a unit."""
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have upper case
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit["Service"]


def command_of(path: Path) -> list[str]:
    """The words of ExecStart, with variables and specifiers filled in, as systemd would."""
    words = service(path)["ExecStart"].split()
    filled: list[str] = []
    for word in words:
        word = word.replace("%i", "one")
        whole = re.fullmatch(r"\$(\w+)", word)
        if whole is not None:
            filled += VALUES[whole[1]].split()
        else:
            filled.append(re.sub(r"\$\{(\w+)\}", lambda found: VALUES[found[1]], word))
    return filled


def test_there_is_a_unit_for_each_process_that_runs_for_ever() -> None:
    assert [path.name for path in UNITS] == [
        "headrace-agent@.service",
        "headrace-backup.service",
        "headrace-capture@.service",
        "headrace-pipeline@.service",
        "headrace-server.service",
    ]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_calls_a_command_that_takes_its_options(path: Path) -> None:
    program, *words = command_of(path)
    assert program == PROGRAM
    command, bound, unused = root().parse_args(words, print_error=False, exit_on_error=False)
    assert command.__module__.startswith("headrace.cli."), command
    assert bound.arguments
    assert not unused.get("unknown")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_is_honest_and_hardened(path: Path) -> None:
    found = service(path)
    assert found["Type"] == "exec", "no process of ours tells systemd when it is ready"
    assert found["User"] == "headrace"
    assert found["Restart"] == "on-failure"
    assert found["RestartPreventExitStatus"] == "2 3"
    assert all(found.get(name) in {"yes", "strict"} for name in HARDENED)
    assert found["CapabilityBoundingSet"] == ""


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Where systemd is not installed, the tests above have looked at the same files."""
    program = shutil.which("systemd-analyze")
    for path in UNITS:
        # It asks for a program that is there.
        text = path.read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
        (tmp_path / path.name.replace("@", "@one")).write_text(text, encoding="utf-8")
    if program is None:
        return
    given = [str(path) for path in sorted(tmp_path.iterdir())]
    words = [program, "verify", "--man=no", "--recursive-errors=no", *given]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    # Nothing that is wrong with our files; what it says of the machine's own units is not ours.
    ours = [line for line in done.stderr.splitlines() if "headrace" in line and "Failed to" not in line]
    assert not ours, done.stderr


def steps() -> list[tuple[str, str]]:
    """The instructions of the container's file, with their words."""
    text = re.sub(r"\\\n\s*", " ", CONTAINERFILE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def test_container_copies_what_is_there_and_runs_as_nobody_special() -> None:
    said = steps()
    assert [name for name, _ in said].count("FROM") == 2
    assert all(rest.startswith("${PYTHON}") for name, rest in said if name == "FROM")
    for name, rest in said:
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    last = said[max(number for number, (name, _) in enumerate(said) if name == "FROM") :]
    (user,) = (rest for name, rest in last if name == "USER")
    assert user.isdecimal()
    assert user != "0"


def test_container_starts_a_command_that_exists() -> None:
    (entry,) = (rest for name, rest in steps() if name == "ENTRYPOINT")
    (words,) = (rest for name, rest in steps() if name == "CMD")
    assert entry == '["headrace"]'
    command, bound, _ = root().parse_args(
        [word.strip('" ') for word in words.strip("[]").split(",")], print_error=False, exit_on_error=False
    )
    assert command.__name__ == "serve_command"
    assert bound.arguments["data_dir"] == Path("/var/lib/headrace/data")


def test_container_lock_has_what_is_asked_for_as_the_other_lock_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += [text for name in ("postgres", "mysql", "backup", "s3") for text in extras[name]]
    pinned = re.compile(r"^([\w.-]+)==([^ ;\\]+)", re.MULTILINE)
    ours = {canonicalize_name(name): version for name, version in pinned.findall(LOCK.read_text())}
    main = {
        (canonicalize_name(name), version)
        for name, version in pinned.findall((ROOT / "requirements.lock").read_text())
    }
    for requirement in map(Requirement, wanted):
        assert ours[canonicalize_name(requirement.name)] in requirement.specifier, (
            f"{requirement}: run make lock"
        )
    assert ours.items() <= main, "the two locks disagree: run make lock"
    assert LOCK.read_text().count("--hash=sha256:") >= len(ours)


def test_container_steps_make_a_headrace_that_runs(tmp_path: Path) -> None:
    """The steps of the first stage, in a folder that holds what was copied and nothing else.

    uv does what pip would, with the same words: it has what the tests have fetched already. That pip knows them is asked.
    """
    built, home = tmp_path / "build", tmp_path / "opt"
    built.mkdir()
    stage = steps()[: [name for name, _ in steps()].index("USER")]
    for name, rest in stage:
        if name == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                place = built / target / (ROOT / source).name if target.endswith("/") else built / target
                place.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
        elif name == "RUN" and " -m venv " in rest:
            run(built, sys.executable, *shlex.split(rest.replace("/opt/headrace", str(home)))[1:])
        elif name == "RUN" and " -m pip " in rest:
            install(built, home, shlex.split(rest))
    shutil.rmtree(built)
    program = str(home / "bin" / "headrace")
    assert run(tmp_path, program, "explain", "stalled").startswith("# `stalled`")
    for words in chosen((["wal", "backup"], ["serve"], ["agent", "run"], ["capture", "run"])):
        assert "Usage: headrace" in run(tmp_path, program, *words, "--help")


def install(built: Path, home: Path, words: list[str]) -> None:
    """Do a step ``…/python -m pip install …`` with uv."""
    program, *module, verb = words[:4]
    assert (program, module, verb) == ("/opt/headrace/bin/python", ["-m", "pip"], "install")
    python = str(home / "bin" / "python")
    known = run(built, python, "-m", "pip", "install", "--help")
    assert all(re.search(rf"{word}\b", known) for word in words if word.startswith("--")), words
    given = [word for word in words[4:] if word != "--no-cache-dir"]
    run(built, find_uv_bin(), "pip", "install", "--quiet", "--python", python, *given)


def run(cwd: Path, *words: str) -> str:
    """Run a command to its end; returns what it printed."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
