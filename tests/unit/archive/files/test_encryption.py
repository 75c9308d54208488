"""Segments encrypted to public keys: read with an identity, and checked without one."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyrage
import pytest
from msgspec.structs import replace

from headrace.archive.files.encryption import check_recipients, encrypt, read_identities
from headrace.archive.files.folder import Folder
from headrace.archive.files.settling import prepare
from headrace.errors import IdentityNeeded, SegmentCorrupt, SegmentsOverlap, Usage
from headrace.pipeline.wal.archive import read_part, segments_of
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import Encryption, Manifest, encode_manifest
from tests.identities import age_identity, ssh_identity
from tests.kwal import INCARNATION, bytes_of, manifest_of, numbered, sealed

SEGMENT = sealed([numbered(1, 300, size=400)])
"""Of more than one of age's chunks, which have 64 KiB."""
LOCKED = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABBSMUNhPe
vq37qnTlVLGbNLAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIJPPzvw27WoXG7y7
rYwCbCKsfMtl+/b64icvJEja+0p9AAAAkCqbboT4u3pc1l7n20L0JXjDWd+DOiVkqqGTva
Kn9nhHMmmZMDbKtMftlyA6w3sNEZRHr57Z6YpYzSpHS1uQA1v07Rw8MiWynsJGnywWrUnz
7UM1lFv2C7gNM59QA1r3WqDi508dB72//MBDBPIOAWCh/9+u0hn85yXuPIlN7zAEkBQhMi
B9DF/TC648V18UGQ==
-----END OPENSSH PRIVATE KEY-----
"""
"""A key of nobody's, as ssh-keygen writes it with a passphrase."""


def put(folder: Path, recipients: list[str], segment: Sealed = SEGMENT) -> Manifest:
    """Write a segment encrypted, and its manifest."""
    files = prepare(segment, manifest_of(segment), recipients)
    folder.mkdir(exist_ok=True)
    (folder / files.manifest.file).write_bytes(b"".join(files.pieces))
    (folder / segment.name.manifest).write_bytes(encode_manifest(files.manifest))
    return files.manifest


def test_each_recipient_can_read_it_and_nobody_else(tmp_path: Path) -> None:
    keys = [tmp_path / name for name in ("age", "second", "ed25519", "rsa", "other")]
    recipients = [
        age_identity(keys[0]),
        age_identity(keys[1]),
        ssh_identity(keys[2]),
        ssh_identity(keys[3], rsa=True),
    ]
    age_identity(keys[4])
    manifest = put(tmp_path / "wal", recipients)
    assert bytes_of(SEGMENT)[:100] not in (tmp_path / "wal" / manifest.file).read_bytes()
    for key in keys[:4]:
        folder = Folder(str(tmp_path / "wal"), str(key))
        (found,) = folder.segments()
        assert found == (
            SEGMENT.name,
            f"{SEGMENT.name}.age",
            manifest.encryption and manifest.encryption.size,
            True,
        )
        assert folder.manifests([found]) == {found.file: manifest}
        assert folder.read_segment(found.file) == bytes_of(SEGMENT)
        assert folder.read_segment(found.file, manifest) == bytes_of(SEGMENT)
    for identity, said in (("", "is encrypted$"), (str(keys[4]), f"no identity in {keys[4]} opens it")):
        with pytest.raises(IdentityNeeded, match=said):
            Folder(str(tmp_path / "wal"), identity).read_segment(manifest.file)


def test_the_manifest_tells_of_the_file_and_of_what_it_says(tmp_path: Path) -> None:
    recipients = [age_identity(tmp_path / "key"), ssh_identity(tmp_path / "ssh")]
    manifest = put(tmp_path, recipients)
    told = manifest.encryption
    data = (tmp_path / f"{SEGMENT.name}.age").read_bytes()
    assert told is not None
    assert (told.format, told.size, told.crc) == ("age", len(data), zlib.crc32(data))
    assert told.recipients == (recipients[0], " ".join(recipients[1].split()[:2])), "without the comment"
    assert (manifest.size, manifest.crc, manifest.readable_from) == (SEGMENT.size, SEGMENT.crc, 3)
    assert manifest.segment == str(SEGMENT.name)


def test_entries_are_read_through_the_archive(tmp_path: Path) -> None:
    put(tmp_path / "wal", [age_identity(tmp_path / "key")])
    (part,) = segments_of(str(tmp_path / "wal"), "vmapi::vm", INCARNATION, 7, 9)
    rows = [batch.to_pydict() for batch in read_part(part, ("sequence_id",), identity=str(tmp_path / "key"))]
    assert rows == [{"sequence_id": [7, 8, 9]}]
    with pytest.raises(IdentityNeeded):
        list(read_part(part, ("sequence_id",)))


def test_every_damage_is_found_with_the_manifest_and_without(tmp_path: Path) -> None:
    manifest = put(tmp_path / "wal", [age_identity(tmp_path / "key")])
    path = tmp_path / "wal" / manifest.file
    folder = Folder(str(tmp_path / "wal"), str(tmp_path / "key"))
    whole = path.read_bytes()
    cut = [whole[:size] for size in (0, 10, 150, 66_000, len(whole) - 1)]
    flipped = [
        whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        for at in (0, 70, 160, 5000, 70_000, len(whole) - 1)
    ]
    for damaged in [*cut, *flipped, whole + b"x"]:
        path.write_bytes(damaged)
        # Without a key, too: the checksum is that of the file.
        for reader in (folder, Folder(str(tmp_path / "wal"))):
            with pytest.raises(SegmentCorrupt, match=manifest.file):
                reader.read_segment(manifest.file)
    path.write_bytes(whole[:-7])
    with pytest.raises(
        SegmentCorrupt, match=f"has {len(whole) - 7} bytes; by its manifest .* with {len(whole)}"
    ):
        folder.read_segment(manifest.file)
    (tmp_path / "wal" / SEGMENT.name.manifest).unlink()
    for damaged in [*cut, *flipped, whole + b"x"]:
        path.write_bytes(damaged)
        with pytest.raises((SegmentCorrupt, IdentityNeeded), match=manifest.file):
            folder.read_segment(manifest.file)
    path.write_bytes(whole)
    assert folder.read_segment(manifest.file) == bytes_of(SEGMENT)


def test_two_files_of_one_segment_and_a_manifest_of_another_kind_are_refused(tmp_path: Path) -> None:
    manifest = put(tmp_path / "wal", [age_identity(tmp_path / "key")])
    plain = tmp_path / "wal" / str(SEGMENT.name)
    plain.write_bytes(bytes_of(SEGMENT))
    folder = Folder(str(tmp_path / "wal"), str(tmp_path / "key"))
    with pytest.raises(SegmentsOverlap, match=r"\.bin and .*\.bin\.age overlap"):
        folder.segments()
    (tmp_path / "wal" / SEGMENT.name.manifest).write_bytes(encode_manifest(manifest_of(SEGMENT)))
    with pytest.raises(SegmentCorrupt, match="is encrypted, and its manifest is of one that is not"):
        folder.read_segment(manifest.file)
    other = replace(manifest, encryption=Encryption(format="gpg", recipients=(), size=1, crc=1))
    (tmp_path / "wal" / SEGMENT.name.manifest).write_bytes(encode_manifest(other))
    with pytest.raises(SegmentCorrupt, match="encrypted as 'gpg'"):
        folder.read_segment(manifest.file)


@pytest.mark.parametrize("text", ["", "age1xyz", "ssh-ed25519 AAAA", "backup@example.org", "ssh-dss AAAA"])
def test_a_recipient_that_is_none_is_named(text: str) -> None:
    with pytest.raises(Usage, match=f"{text!r} is no recipient"):
        check_recipients([text])
    with pytest.raises(Usage, match="no recipient"):
        encrypt([b"x"], [text])


def test_no_secret_is_printed(tmp_path: Path) -> None:
    secret = str(pyrage.x25519.Identity.generate())
    with pytest.raises(Usage) as caught:
        check_recipients([secret])
    assert secret not in str(caught.value)
    other = secret[:-1] + ("P" if secret[-1] == "Q" else "Q")
    (tmp_path / "key").write_text(f"# mine\n{secret}\n{other}\n")
    with pytest.raises(Usage, match="line 3 is no age identity") as caught:
        read_identities(str(tmp_path / "key"))
    assert secret[:20] not in str(caught.value)


def test_an_identity_file_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="none can't be read: No such file"):
        read_identities(str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n\n")
    with pytest.raises(Usage, match="empty holds no age identity"):
        read_identities(str(tmp_path / "empty"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Usage, match="binary: line 1"):
        read_identities(str(tmp_path / "binary"))
    (tmp_path / "ssh").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")
    with pytest.raises(Usage, match="ssh is no SSH private key that can be used"):
        read_identities(str(tmp_path / "ssh"))
    (tmp_path / "locked").write_text(LOCKED)
    with pytest.raises(Usage, match="locked is no SSH private key that can be used"):
        read_identities(str(tmp_path / "locked"))


def test_what_is_decrypted_is_checked_as_any_segment(tmp_path: Path) -> None:
    other = sealed([numbered(1, 300, size=399)])
    manifest = put(tmp_path / "wal", [age_identity(tmp_path / "key")], other)
    folder = Folder(str(tmp_path / "wal"), str(tmp_path / "key"))
    data = folder.read_segment(manifest.file)
    with pytest.raises(SegmentCorrupt, match="manifest"):
        Segment(data, where="it", name=manifest.name, manifest=manifest_of(SEGMENT))
