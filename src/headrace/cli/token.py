"""``headrace token``: keys and tokens for development. In production an identity provider makes them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from headrace.access.claims import read_time
from headrace.access.grants import Role, grant_of
from headrace.access.minting import (
    PRIVATE_FILE,
    PUBLIC_FILE,
    key_set_of,
    mint,
    new_key,
    public_jwk,
    read_key,
    unverified,
    write_keys,
)
from headrace.client.credential import read_token
from headrace.errors import ConfigInvalid, Usage
from headrace.runtime.settings import parse_duration

app = App(name="token", help="Make and look at tokens for development.")

EXPIRES_S_MAX: Final = 3650 * 86400
"""Ten years: a token can't be taken back, only its key."""

Flag = Annotated[bool, Parameter(negative=())]
Many = Annotated[tuple[str, ...], Parameter(negative=(), consume_multiple=False)]


@app.command
def keygen(
    *, dir_: Path, algorithm: Literal["EdDSA", "ES256", "RS256"] = "EdDSA", json: Flag = False
) -> None:
    """Make a private key (private.pem, for you alone) and its public half (jwks.json, for the server's --auth-jwks).

    Parameters
    ----------
    dir_
        Folder to write them to; made if it isn't there. A key that is there already is never replaced.
    algorithm
        How tokens are signed with it.
    json
        Print one JSON document.
    """
    key = new_key(algorithm)
    write_keys(dir_, key)
    public = (dir_ / PUBLIC_FILE).resolve()
    found = {
        "private-key": str(dir_ / PRIVATE_FILE),
        "jwks": str(public),
        "auth-jwks": public.as_uri(),
        "kid": public_jwk(key)["kid"],
    }
    lines = f"private key  {found['private-key']}\nserve with   --auth-jwks {found['auth-jwks']}"
    _say(found, lines, as_json=json)


@app.command(name="mint")
def mint_command(
    *,
    key: Path,
    sub: str,
    role: Many = (),
    feed: Many = (),
    tenant: str | None = None,
    expires: str = "1h",
    issuer: str | None = None,
    audience: str | None = None,
    json: Flag = False,
) -> None:
    """Print a token that the key signs.

    Parameters
    ----------
    key
        The private key: private.pem of headrace token keygen.
    sub
        Whom the token is for.
    role
        publisher, listener, replication or admin; may be given several times.
    feed
        Feeds that it is good for, such as vmapi::vm or 'vmapi::*'; may be given several times. Publishers and listeners need
        one.
    tenant
        The only tenant whose feeds it is good for. Replication needs one.
    expires
        How long it is good for, such as 15m, 1h or 30d.
    issuer
        What the server's --auth-issuer asks for.
    audience
        What the server's --auth-audience asks for.
    json
        Print one JSON document.
    """
    roles = [_role(name) for name in role]
    _check_roles(roles, feed, tenant)
    now = int(time.time())
    end = now + _seconds(expires)
    given = {"iss": issuer, "aud": audience, "tenant": tenant, "feeds": list(feed) or None}
    claims: dict[str, Any] = {"sub": sub, "iat": now, "exp": end, "roles": [str(name) for name in roles]}
    claims |= {name: value for name, value in given.items() if value is not None}
    try:
        grant_of(claims, end)
    except ValueError as error:
        raise Usage(str(error)) from None
    token = mint(claims, read_key(key))
    _say({"token": token, "expires-at": _moment(end), "claims": claims}, token, as_json=json)


@app.command
def jwks(*, key: Many, out: Path | None = None, json: Flag = False) -> None:
    """Print the public halves of keys as one key set: give the old key and the new one while tokens of both are in use.

    Parameters
    ----------
    key
        A private key; may be given several times.
    out
        Write the set to this file instead; a server that reads it takes it up within seconds.
    json
        Print one JSON document.
    """
    if not key:
        raise Usage("--key is missing")
    document = key_set_of([read_key(Path(path)) for path in key])
    if out is None:
        print(document.decode().rstrip(), flush=True)
        return
    draft = out.with_name(out.name + ".tmp")
    try:
        draft.write_bytes(document)
        draft.replace(out)
    except OSError as error:
        raise ConfigInvalid(f"--out {out}: can't be written: {error.strerror}") from None
    _say({"jwks": str(out), "keys": len(key)}, f"wrote {out}: {len(key)} keys", as_json=json)


@app.command
def show(*, token_file: Path | None = None, json: Flag = False) -> None:
    """Show what a token says, without checking it, and without its signature: what is printed lets nobody in.

    Parameters
    ----------
    token_file
        File that holds the token, such as /dev/stdin (else HEADRACE_TOKEN).
    json
        Print one JSON document.
    """
    token = read_token(token_file)
    if not token:
        raise Usage("there is no token", hint="Give --token-file, or set HEADRACE_TOKEN.")
    try:
        header, claims = unverified(token)
    except ValueError as error:
        raise ConfigInvalid(f"the token can't be read: {error}") from None
    try:
        ends = read_time(claims, "exp")
    except ValueError as error:
        raise ConfigInvalid(f"the token can't be read: {error}") from None
    found = {
        "header": header,
        "claims": claims,
        "expires-at": None if ends is None else _moment(ends),
        "expired": ends is not None and time.time() >= ends,
    }
    # As JSON, names too: what a stranger wrote must not steer the terminal.
    lines = [f"{dump_json(name)[1:-1]:10} {dump_json(value)}" for name, value in (header | claims).items()]
    lines.append(f"{'ends':10} {found['expires-at'] or 'never'}{' (expired)' if found['expired'] else ''}")
    _say(found, "\n".join(lines), as_json=json)


def _seconds(expires: str) -> int:
    seconds = parse_duration(expires, "--expires")
    if not 1 <= seconds <= EXPIRES_S_MAX:
        raise Usage(f"--expires: {expires[:80]!r} is not between 1s and {EXPIRES_S_MAX // 86400}d")
    return int(seconds)


def _role(name: str) -> Role:
    try:
        return Role(name)
    except ValueError:
        raise Usage(f"--role: there is no role {name[:80]!r}", hint=f"One of: {', '.join(Role)}.") from None


def _check_roles(roles: list[Role], feeds: tuple[str, ...], tenant: str | None) -> None:
    """Refuse what would make a token that allows nothing, or more than whoever wrote it may think."""
    if not roles:
        raise Usage("--role is missing", hint=f"One of: {', '.join(Role)}.")
    if Role.ADMIN in roles and (feeds or tenant is not None):
        raise Usage(
            "--role admin: may do everything, whatever --feed and --tenant say", hint="Leave them out."
        )
    if {Role.PUBLISHER, Role.LISTENER} & set(roles) and not feeds:
        raise Usage(
            f"--role {roles[0]}: --feed is missing: it would be good for none",
            hint="Give --feed '*' for all.",
        )
    if Role.REPLICATION in roles and tenant is None:
        raise Usage("--role replication: --tenant is missing: it would be good for none")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _say(document: dict[str, Any], lines: str, *, as_json: bool) -> None:
    print(dump_json(document) if as_json else lines, flush=True)
