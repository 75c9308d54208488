"""A source's address: where it comes from, what it says, and that it is never printed (it may hold a password)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import ConfigInvalid, DsnInvalid

ENVIRONMENT_NAME = "HEADRACE_DSN"


@dataclass(frozen=True, slots=True)
class Dsn:
    """``{scheme}://{rest}``. Only the scheme shows in logs, errors and reprs."""

    scheme: str
    rest: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://..."


def parse_dsn(text: str) -> Dsn:
    """Return the parts of a DSN such as ``sqlite:///app.db``; DsnInvalid, without the text, for anything else."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator or not scheme.isalnum() or not rest:
        raise DsnInvalid("the DSN is not of the form SCHEME://...")
    return Dsn(scheme.lower(), rest)


def read_secret(path: Path, name: str) -> str:
    """Return the first line of the file that holds a secret; ConfigInvalid naming the setting ``name``."""
    try:
        lines = path.read_text(encoding="utf-8").strip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigInvalid(f"{name}: {path} can't be read: {reason}", hint=f"Check {name}.") from None
    if not lines:
        raise ConfigInvalid(f"{name}: {path} is empty", hint=f"Check {name}.")
    return lines[0].strip()


def find_dsn(dsn: str | None, dsn_file: Path | None, environment: Mapping[str, str]) -> Dsn:
    """Return the DSN given as ``dsn``, else the one in ``dsn_file``, else the one in ``HEADRACE_DSN``.

    Raises ConfigInvalid if both of the first are given, DsnInvalid if there is none or it is malformed.
    """
    if dsn is not None and dsn_file is not None:
        raise ConfigInvalid("dsn and dsn-file are both given", hint="Keep one of the two.")
    if dsn_file is not None:
        return parse_dsn(read_secret(dsn_file, "dsn-file"))
    text = dsn if dsn is not None else environment.get(ENVIRONMENT_NAME)
    if not text:
        raise DsnInvalid("no source was named", hint=f"Give a DSN, a dsn-file, or set {ENVIRONMENT_NAME}.")
    return parse_dsn(text)
