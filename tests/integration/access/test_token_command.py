"""``headrace token``: what it makes is what a server takes, and what it shows lets nobody in."""

from __future__ import annotations

import json
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from headrace.access.key_fetch import key_fetch_of
from headrace.access.key_source import KeySource, KeyTerms
from headrace.access.minting import mint, new_key
from headrace.access.tokens import TokenTerms, TokenVerifier
from headrace.cli.app import main
from headrace.errors import Unauthenticated
from tests import forks
from tests.waiting import async_wait_until


def run(*words: str) -> tuple[int, str, str]:
    """Run ``headrace token`` in this process; returns exit code, stdout and stderr."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["token", *words])
    return code, out.getvalue(), err.getvalue()


def document(*words: str) -> Any:
    """Run it with ``--json``; returns what it printed."""
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
async def test_minted_token_is_taken_by_a_server_with_the_key_set(tmp_path: Path, algorithm: str) -> None:
    made = document("keygen", "--dir", str(tmp_path / "keys"), "--algorithm", algorithm)
    assert Path(made["private-key"]).stat().st_mode & 0o077 == 0
    words = ["--key", made["private-key"], "--sub", "tcns", "--role", "listener", "--role", "publisher"]
    words += ["--feed", "vmapi::*", "--feed", "cnapi::server", "--tenant", "t1", "--expires", "15m"]
    minted = document("mint", *words, "--issuer", "dev", "--audience", "headrace")
    async with KeySource(key_fetch_of(made["auth-jwks"])) as keys:
        grant = await TokenVerifier(keys, TokenTerms(issuer="dev", audience="headrace")).verify(
            minted["token"]
        )
        assert grant.subject == "tcns"
        assert grant.may_listen("vmapi::vm", "t1")
        assert grant.may_publish("cnapi::server", "t1")
        assert not grant.may_listen("vmapi::vm", "t2")
        assert grant.expires_at is not None
        assert 0 < grant.expires_at - time.time() <= 15 * 60
        with pytest.raises(Unauthenticated):
            await TokenVerifier(keys, TokenTerms(issuer="prod", audience="headrace")).verify(minted["token"])


async def test_keys_are_rotated_by_a_set_of_both(tmp_path: Path) -> None:
    old, new = (document("keygen", "--dir", str(tmp_path / name)) for name in ("old", "new"))
    published = tmp_path / "jwks.json"
    document("jwks", "--key", old["private-key"], "--out", str(published))
    terms = KeyTerms(refresh_s=0.02, unknown_pause_s=0)
    async with KeySource(key_fetch_of(published.as_uri()), terms=terms) as keys:
        verifier = TokenVerifier(keys)
        tokens = [
            document("mint", "--key", made["private-key"], "--sub", "a", "--role", "admin")["token"]
            for made in (old, new)
        ]
        await verifier.verify(tokens[0])
        document("jwks", "--key", old["private-key"], "--key", new["private-key"], "--out", str(published))
        for token in tokens:
            await verifier.verify(token)
        code, out, _ = run("jwks", "--key", new["private-key"])
        assert code == 0
        published.write_text(out)

        async def withdrawn() -> bool:
            try:
                await verifier.verify(tokens[0])
            except Unauthenticated:
                return True
            return False

        await async_wait_until(withdrawn, what="the old key to be taken out")
        await verifier.verify(tokens[1])


def test_shown_token_lets_nobody_in(tmp_path: Path) -> None:
    made = document("keygen", "--dir", str(tmp_path))
    code, out, _ = run(
        "mint", "--key", made["private-key"], "--sub", "ann", "--role", "admin", "--expires", "1s"
    )
    assert code == 0
    file = tmp_path / "token"
    file.write_text(out)
    signature = out.strip().rsplit(".", 1)[1]
    code, shown, err = run("show", "--token-file", str(file))
    assert code == 0, err
    assert '"admin"' in shown
    assert signature not in shown
    (tmp_path / "hostile").write_text(mint({"sub": "\x1b[2J", "\x1b[2J": 1}, new_key("EdDSA")))
    code, hostile, _ = run("show", "--token-file", str(tmp_path / "hostile"))
    assert code == 0
    assert "\x1b" not in hostile, "what a stranger wrote must not steer the terminal"
    command = [
        *forks.HEADRACE,
        "token",
        "show",
        "--token-file",
        "/dev/stdin",
        "--json",
    ]
    done = forks.run(command, capture_output=True, text=True, given=out, timeout=60, check=True)
    assert json.loads(done.stdout)["claims"]["roles"] == ["admin"]
    assert signature not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--role", "root"], "no role 'root'"),
        ([], "--role is missing"),
        (["--role", "listener"], "--feed is missing"),
        (["--role", "publisher"], "--feed is missing"),
        (["--role", "replication"], "--tenant is missing"),
        (["--role", "admin", "--feed", "a"], "may do everything"),
        (["--role", "admin", "--tenant", "a"], "may do everything"),
        (["--role", "listener", "--feed", "a b"], "no feed pattern"),
        (["--role", "replication", "--tenant", "a:b"], "tenant"),
        (["--role", "admin", "--expires", "soon"], "--expires"),
        (["--role", "admin", "--expires", "9999999d"], "--expires"),
        (["--role", "admin", "--expires", "9" * 400 + "d"], "--expires"),
        (["--role", "admin", "--expires", "1ms"], "--expires"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_token_that_makes_no_sense_is_not_minted(tmp_path: Path, words: list[str], said: str) -> None:
    made = document("keygen", "--dir", str(tmp_path))
    code, out, err = run("mint", "--key", made["private-key"], "--sub", "a", *words)
    assert code == 2
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_other_mistakes_are_named(tmp_path: Path) -> None:
    made = document("keygen", "--dir", str(tmp_path))
    for words, said in (
        (["keygen", "--dir", str(tmp_path)], "is there already"),
        (["keygen", "--dir", made["jwks"]], "can't be written"),
        (["mint", "--key", made["jwks"], "--sub", "a", "--role", "admin"], "holds no private key"),
        (["jwks"], "--key"),
        (["jwks", "--key", str(tmp_path / "none")], "can't be read"),
        (["jwks", "--key", made["private-key"], "--out", str(tmp_path / "none" / "x")], "can't be written"),
        (["show", "--token-file", made["private-key"]], "holds no token"),
    ):
        code, _, err = run(*words)
        assert code == 2, words
        assert said in err, words
        assert "Traceback" not in err
    (tmp_path / "nonsense").write_text("nonsense")
    assert run("show", "--token-file", str(tmp_path / "nonsense"))[0] == 2
