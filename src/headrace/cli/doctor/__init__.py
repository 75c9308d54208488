"""``headrace doctor``: look at configuration, machine, log and server, and say of each thing what to do.

In: what there is to look at. Out: findings, by the checks of ``registry.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from headrace.cli.doctor.finding import Asked, Finding, Moment, Verdict, fail, failed
from headrace.cli.doctor.here import AGENT_CONFIG, CAPTURE_CONFIG, DATA_DIR, here
from headrace.cli.serve_options import AccessOptions, RetentionOptions
from headrace.errors import HeadraceError, SetupMissing

app = App(name="doctor", help="Check configuration, machine and server, and say what to do.")

Flag = Annotated[bool, Parameter(negative=())]

_ACCESS, _RETENTION = AccessOptions(), RetentionOptions()

SIGNS: Final = {Verdict.OK: "ok  ", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL"}


@app.default
def doctor_command(
    *,
    data_dir: Path | None = None,
    store: Annotated[str | None, Parameter(env_var="HEADRACE_STORE")] = None,
    disk_reserve: str | None = None,
    agent_config: Path | None = None,
    capture_config: Path | None = None,
    server: Annotated[str | None, Parameter(env_var="HEADRACE_SERVER")] = None,
    grpc: Annotated[str | None, Parameter(env_var="HEADRACE_GRPC")] = None,
    token_file: Path | None = None,
    ca_file: Path | None = None,
    wal_dir: str | None = None,
    identity: Path | None = None,
    access: AccessOptions = _ACCESS,
    retention: RetentionOptions = _RETENTION,
    deep: Flag = False,
    json: Flag = False,
) -> int:
    """Check what is here: configuration, packages, disk, log, server, source, archive, clocks. It changes nothing.

    Run it as the user that the service runs as. Exit code 0 if nothing failed (warnings are no failure), else 1.

    Parameters
    ----------
    data_dir
        The server's folder. Default: headrace-data, if it is there.
    store
        The log in a database instead: postgresql://USER@HOST/DATABASE.
    disk_reserve
        As for headrace serve.
    agent_config
        An agent's settings; its source is looked at too. Default: agent.toml, if it is there.
    capture_config
        Capture's settings; its source is looked at too. Default: capture.toml, if it is there.
    server
        Address of the server. Default: that of the agent's settings, else http://127.0.0.1:8470.
    grpc
        HOST:PORT of its gRPC; not looked at unless it is given.
    token_file
        File that holds the bearer token. Default: that of the agent's settings, else HEADRACE_TOKEN.
    ca_file
        PEM file of the authorities. Default: that of the agent's settings, else HEADRACE_TLS_CA.
    wal_dir
        A backup's folder or address.
    identity
        File of the age identities that open its segments.
    deep
        Read every byte of the log, as headrace log verify does; without it, the mark and the newest segment.
    json
        Print one JSON document (docs/howto/doctor.md).
    """
    asked = Asked(
        began=Moment(time.time_ns() // 1_000_000, time.monotonic()),
        data_dir=data_dir or here(DATA_DIR),
        store=store,
        disk_reserve=disk_reserve,
        access=access,
        retention=retention,
        server=server,
        grpc=grpc,
        token_file=token_file,
        ca_file=ca_file,
        agent_config=agent_config or here(AGENT_CONFIG),
        capture_config=capture_config or here(CAPTURE_CONFIG),
        wal_dir=wal_dir,
        identity=identity,
        deep=deep,
    )
    return tell(list(examine_all(asked)), as_json=json)


def tell(found: list[tuple[str, Finding]], *, as_json: bool) -> int:
    """Print what was found; returns the exit code."""
    if as_json:
        print(dump_json(_document(found), ensure_ascii=False))
    else:
        _print(found)
    return int(any(one.verdict is Verdict.FAIL for _, one in found))


def examine_all(asked: Asked) -> Iterator[tuple[str, Finding]]:
    """Yield what each check finds, under its name; an error that it raises is what it found."""
    from headrace.cli.doctor.registry import CHECKS

    for name, check in CHECKS.items():
        try:
            found = check(asked)
        except HeadraceError as error:
            found = [failed(error)]
        except ModuleNotFoundError as error:  # a package of an extra; our own are there
            found = [fail(f"the package {error.name} is not installed", SetupMissing.hint, SetupMissing.code)]
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            found = [fail(f"{what}{error.strerror or error}", "Check that it is there, and its rights.")]
        for one in found:
            yield name, one


def _document(found: list[tuple[str, Finding]]) -> dict[str, object]:
    worst = [one.verdict for _, one in found]
    return {
        "failed": worst.count(Verdict.FAIL),
        "warnings": worst.count(Verdict.WARN),
        "checks": [
            {
                "check": name,
                "verdict": one.verdict,
                "reason": one.reason,
                "hint": one.hint or None,
                "code": one.code or None,
            }
            for name, one in found
        ],
    }


def _print(found: list[tuple[str, Finding]]) -> None:
    for name, one in found:
        print(f"{SIGNS[one.verdict]} {name}: {one.reason}")
        if one.hint:
            print(f"       {one.hint}" + (f" (headrace explain {one.code})" if one.code else ""))
    failures = sum(one.verdict is Verdict.FAIL for _, one in found)
    warnings = sum(one.verdict is Verdict.WARN for _, one in found)
    print(f"{failures} failed, {warnings} warnings, {len(found) - failures - warnings} in order")
