"""TOML settings into frozen values: an unknown key is an error that names it, and so is a wrong type."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.errors import ConfigInvalid

T = TypeVar("T", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """A group of settings. Keys are written with hyphens in TOML; a key that is not a field is refused."""


def load_toml(path: Path, kind: type[T]) -> T:
    """Read ``path`` as TOML into ``kind``.

    Raises :class:`ConfigInvalid` naming file and key: unreadable file, bad TOML, unknown key, wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(
            f"{path}: can't be read: {error}", hint="Check the path given with --config."
        ) from None
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{path}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        keys = ", ".join(sorted(str(field.encode_name) for field in msgspec.structs.fields(kind)))
        raise ConfigInvalid(f"{path}: {error}", hint=f"The keys are: {keys}.") from None


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str, name: str) -> float:
    """Return the seconds that ``text`` (``500ms``, ``30s``, ``48h``, ``2d``) means; ``name`` is the setting's name.

    Raises :class:`ConfigInvalid`.
    """
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ConfigInvalid(f"{name}: {text!r} is not a duration", hint="Write 500ms, 30s, 15m, 48h or 2d.")
    return float(match[1]) * _SECONDS[match[2]]


_SIZE = re.compile(r"([0-9]+)([kmgt]?)")
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str, name: str) -> int:
    """Return the bytes that ``text`` (``4096``, ``128m``, ``20g``; powers of 1,024) means; ``name`` is the setting's name.

    Raises :class:`ConfigInvalid`.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if not match:
        raise ConfigInvalid(f"{name}: {text!r} is not a size", hint="Write 4096, 64k, 128m or 20g.")
    return int(match[1]) * _BYTES[match[2]]
