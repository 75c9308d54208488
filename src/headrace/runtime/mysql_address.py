"""A DSN of MariaDB or MySQL as the driver's arguments: what the publisher and capture connect with."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.errors import DsnInvalid
from headrace.runtime.dsn import Dsn

CONNECT_TIMEOUT_S: Final = 10
ANSWER_TIMEOUT_S: Final = 60
"""After so long without an answer the connection counts as lost; ``answer-timeout`` in the DSN sets another time."""

ANSWER_TIMEOUT_S_MAX: Final = 86_400

MYSQL_DSN_HINT: Final = (
    "Write mariadb://USER:PASSWORD@HOST:PORT/DATABASE. In a password @ is %40, / is %2F, ? is %3F, % is %25. After ? may "
    "stand socket=PATH, ssl-ca=PATH and answer-timeout=SECONDS, joined by &."
)

_PORT: Final = 3306
_OPTIONS: Final = ("answer-timeout", "socket", "ssl-ca")


def read_mysql_address(
    dsn: Dsn, answer_timeout_s: int = ANSWER_TIMEOUT_S, *, database: bool = True
) -> dict[str, Any]:
    """Return the driver's arguments for a DSN; ``database``: it must name one, else it may.

    Raises DsnInvalid without any of the DSN's text, which may hold a password.
    """
    try:
        parts = urlsplit(f"mariadb://{dsn.rest}")
        options = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        address: dict[str, Any] = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or _PORT,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": unquote(parts.path.removeprefix("/")),
        }
        timeout_s = int(options.get("answer-timeout", [str(answer_timeout_s)])[0])
    except ValueError:
        raise DsnInvalid("the DSN can't be read", hint=MYSQL_DSN_HINT) from None
    if (database and not address["database"]) or "/" in address["database"]:
        raise DsnInvalid("the DSN names no database", hint=MYSQL_DSN_HINT)
    if set(options) - set(_OPTIONS) or any(len(given) > 1 for given in options.values()):
        raise DsnInvalid(
            f"the DSN has an option that is not known, or one twice: known are {', '.join(_OPTIONS)}",
            hint=MYSQL_DSN_HINT,
        )
    if not 1 <= timeout_s <= ANSWER_TIMEOUT_S_MAX:
        raise DsnInvalid(
            f"answer-timeout is not from 1 to {ANSWER_TIMEOUT_S_MAX} (seconds)", hint=MYSQL_DSN_HINT
        )
    address |= {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": timeout_s,
        "write_timeout": timeout_s,
    }
    if "socket" in options:
        address["host"] = address["unix_socket"] = options["socket"][0]  # the driver's errors name the host
    if "ssl-ca" in options:
        address["ssl"] = {"ca": options["ssl-ca"][0], "check_hostname": True}
    return address
