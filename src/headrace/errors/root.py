"""The root of the error tree: what every error carries."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

SideEffects = Literal["none", "possible"]
"""Can something of an append that was not taken stand in the log, or still come to?"""


def printable(text: str) -> str:
    """Return ``text`` as UTF-8 can hold it: of a file's name that is no UTF-8, the odd bytes as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class HeadraceError(Exception):
    """Something went wrong in Headrace; the subclass says what."""

    code: ClassVar[str] = "failed"
    hint: ClassVar[str] = "See the log of the process for the reason."
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    side_effects: ClassVar[SideEffects] = "possible"
    """Can something of the append that this refuses stand in the log, or still come to? A member of the same name wins."""

    def __init__(self, detail: str = "", /, *, hint: str | None = None, **members: Any) -> None:
        """Keep ``detail`` (default: the class's docstring), an own ``hint`` and extra members of the problem document.

        Member names are written with underscores here and with hyphens on the wire; ``None`` members are left out.
        """
        self.detail = printable(detail or (type(self).__doc__ or "").strip())
        self.advice = hint if hint is not None else self.hint
        self.members = {name.replace("_", "-"): value for name, value in members.items() if value is not None}
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_revive, (type(self), self.detail, self.advice, self.members))


def _revive(kind: type[HeadraceError], detail: str, advice: str, members: dict[str, Any]) -> HeadraceError:
    error = kind(detail, hint=advice)
    error.members = members
    return error
