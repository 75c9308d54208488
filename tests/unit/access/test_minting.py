"""Keys and tokens for development."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headrace.access.key_set import ALGORITHMS, parse_key_set
from headrace.access.minting import mint, new_key, public_jwk, read_key, unverified, write_keys
from headrace.errors import ConfigInvalid


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_are_written_for_their_owner_alone(tmp_path: Path, algorithm: str) -> None:
    folder = tmp_path / "new" / "keys"
    key = new_key(algorithm)
    write_keys(folder, key)
    assert (folder / "private.pem").stat().st_mode & 0o777 == 0o600
    assert public_jwk(read_key(folder / "private.pem")) == public_jwk(key)
    document = (folder / "jwks.json").read_bytes()
    assert [found.algorithm for found in parse_key_set(document).keys] == [algorithm]
    assert not {"d", "p", "q", "dp", "dq", "qi"} & json.loads(document)["keys"][0].keys()


def test_key_is_never_replaced(tmp_path: Path) -> None:
    write_keys(tmp_path, new_key("EdDSA"))
    before = [(tmp_path / name).read_bytes() for name in ("private.pem", "jwks.json")]
    with pytest.raises(ConfigInvalid, match="is there already"):
        write_keys(tmp_path, new_key("EdDSA"))
    assert [(tmp_path / name).read_bytes() for name in ("private.pem", "jwks.json")] == before


def test_keys_that_sign_no_tokens_are_refused(tmp_path: Path) -> None:
    pems = [
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 1024))
    ]
    for content in (
        *pems,
        b"",
        b"secret text",
        b"-----BEGIN PRIVATE KEY-----\nsecret text\n-----END PRIVATE KEY-----\n",
    ):
        file = tmp_path / "key.pem"
        file.write_bytes(content)
        with pytest.raises(ConfigInvalid) as refused:
            read_key(file)
        assert "secret text" not in refused.value.detail
    with pytest.raises(ConfigInvalid, match="can't be read"):
        read_key(tmp_path / "none.pem")


def test_thumbprint_is_that_of_rfc_7638() -> None:
    kids = {algorithm: public_jwk(new_key(algorithm))["kid"] for algorithm in ALGORITHMS}
    assert all(len(str(kid)) == 43 for kid in kids.values())
    assert len(set(kids.values())) == len(kids)


def test_token_is_read_without_its_signature() -> None:
    token = mint({"sub": "ann"}, new_key("EdDSA"))
    header, claims = unverified(token + "\n")
    assert header["alg"] == "EdDSA"
    assert claims["sub"] == "ann"
    assert token.rsplit(".", 1)[1] not in f"{header}{claims}"
    assert mint({"sub": "ann"}, new_key("EdDSA")) != token
    with pytest.raises(ValueError, match="no JWT"):
        unverified("abc")
