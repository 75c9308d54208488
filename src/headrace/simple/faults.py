"""How the errors of this room are worded: message, field, expected type, and what stands there instead."""

from __future__ import annotations

from typing import Final

from headrace.errors import SimpleInvalid, SimpleUnsupported

_SHOWN_CHARS_MAX: Final = 60


def invalid(message: str, field: str, expected: str, found: object) -> SimpleInvalid:
    """Return the error for ``field`` of the message named ``message``, which is not ``expected``.

    ``found`` is shown by its repr, cut; it is used as it is where it is a :class:`Shown`.
    """
    shown = found if isinstance(found, Shown) else show(found)
    return SimpleInvalid(
        f"{message}: {field} must be {expected}, not {shown}", message=message, field=field, expected=expected
    )


def unsupported(message: str, field: str, expected: str, why: str) -> SimpleUnsupported:
    """Return the error for a feature that is not read: ``field`` shows it, ``why`` says what it is."""
    return SimpleUnsupported(f"{message}: {field}: {why}", message=message, field=field, expected=expected)


class Shown(str):
    """Words for what was found, to be used as they are."""

    __slots__ = ()


def show(value: object) -> str:
    """Return a short text of ``value`` for a person; of a value whose repr fails, its type."""
    if value is None:
        return "null"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value[: _SHOWN_CHARS_MAX + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


class Misfit(Exception):
    """A value does not fit its column's type; whoever knows message and column makes an error of it."""
