"""The root of the error tree: what every error carries."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

SideEffects = Literal["none", "possible"]
"""Can something of an append that was not taken stand in the log, or still come to?"""


class Recovery(StrEnum):
    """What whoever goes on for ever (an agent, a listener) does after an error; each class of the tree says it, once.

    ``WAIT``: it passes by itself, so again with backoff. ``ATTEND``: somebody must mend it elsewhere (a token, a table): an
    alarm, then again with backoff, and it goes on by itself. ``REGISTER``: what was known of the server is out of date:
    register anew, and go on from what that answers. ``END``: no repetition can mend it.
    """

    WAIT = "wait"
    ATTEND = "attend"
    REGISTER = "register"
    END = "end"


def printable(text: str) -> str:
    """Return ``text`` as UTF-8 can hold it: of a file's name that is no UTF-8, the odd bytes as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class HeadraceError(Exception):
    """Something went wrong in Headrace; the subclass says what."""

    code: ClassVar[str] = "failed"
    hint: ClassVar[str] = "See the log of the process for the reason."
    recovery: Recovery = Recovery.END
    """What a listener does, and an agent unless ``publisher_recovery`` says otherwise. An error may know better than its
    class: a 403 to a client whose token is in a file."""
    publisher_recovery: ClassVar[Recovery | None] = None
    retryable: ClassVar[bool] = False
    """Can the same request succeed later without a change? Follows from the class's ``recovery``: that it is ``WAIT``."""
    retry_after_s: float | None = None
    """So long the server asks to be left alone; None if it did not say."""
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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.retryable = cls.recovery is Recovery.WAIT

    @property
    def may_pass(self) -> bool:
        """True where the same call can succeed later, by itself or once somebody has mended what is outside."""
        return self.recovery in {Recovery.WAIT, Recovery.ATTEND}

    @property
    def recovery_of_publisher(self) -> Recovery:
        """What an agent does."""
        return self.publisher_recovery or self.recovery

    def __reduce__(self) -> tuple[Any, ...]:
        return (_revive, (type(self), self.detail, self.advice, self.members))


def _revive(kind: type[HeadraceError], detail: str, advice: str, members: dict[str, Any]) -> HeadraceError:
    error = kind(detail, hint=advice)
    error.members = members
    return error
