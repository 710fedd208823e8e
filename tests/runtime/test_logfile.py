"""The log file of a broker: bounded, with whole lines and the error output of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.runtime import LogConfig, Supervisor, generate
from gapless.runtime.logfile import LogFile
from gapless.runtime.toml import read_toml
from tests.runtime.nodes import run


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_full_file_is_rotated_and_the_oldest_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = LogFile(path, 20, 2)
    for number in range(8):
        file.write(f"line {number}..\n")
    file.close()
    assert lines_of(path) == ["line 6..", "line 7.."]
    assert lines_of(tmp_path / "broker.log.1") == ["line 4..", "line 5.."]
    assert lines_of(tmp_path / "broker.log.2") == ["line 2..", "line 3.."]
    assert len([*tmp_path.iterdir()]) == 3


def test_a_line_is_never_divided_and_a_long_one_has_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = LogFile(path, 20, 9)
    for line in ("short\n", "long" * 10 + "\n", "short\n"):
        file.write(line)
    file.close()
    assert lines_of(tmp_path / "broker.log.2") == ["short"]
    assert lines_of(tmp_path / "broker.log.1") == ["long" * 10]
    assert lines_of(path) == ["short"]


def test_a_full_file_is_removed_if_no_old_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    file = LogFile(path, 12, 0)
    file.write("the first\n")
    file.write("the second\n")
    file.close()
    assert lines_of(path) == ["the second"]
    assert [*tmp_path.iterdir()] == [path]


def test_lines_of_a_former_process_count_for_the_size(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_text("what an older process said\n")
    file = LogFile(path, 30, 1)
    file.write("and a newer\n")
    file.close()
    assert lines_of(path) == ["and a newer"]
    assert lines_of(tmp_path / "broker.log.1") == ["what an older process said"]


def test_a_file_that_cannot_be_rotated_is_still_written_to(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    (tmp_path / "broker.log.1").mkdir()
    file = LogFile(path, 12, 1)
    file.write("the first\n")
    file.write("the second\n")
    file.close()
    assert lines_of(path) == ["the first", "the second"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"log\.file .*nowhere.* cannot be written"):
        LogFile(tmp_path / "nowhere" / "broker.log", 100, 1)


def test_the_error_output_of_a_process_is_in_the_current_file(
    tmp_path: Path,
) -> None:
    program = (
        "from gapless.runtime.logfile import LogFile; from pathlib import Path;"
        f"file = LogFile(Path({str(tmp_path / 'broker.log')!r}), 12, 1, takes_errors=True);"
        "file.write('the first\\n'); file.write('the second\\n'); raise SystemExit('it breaks')"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"")
    assert lines_of(tmp_path / "broker.log") == ["the second", "it breaks"]
    assert lines_of(tmp_path / "broker.log.1") == ["the first"]


def test_the_log_of_a_supervised_broker_is_bounded(tmp_path: Path) -> None:
    log = LogConfig(bytes_max=4_096, files_kept=1)

    async def lived() -> None:
        async with Supervisor(generate("line:1"), tmp_path, port=0, log=log):
            pass

    directory = tmp_path / "b1"
    run(lived())
    one_incarnation = (directory / "broker.log").stat().st_size
    (directory / "broker.log").write_text("." * (4_096 - one_incarnation // 2) + "\n")
    run(lived())
    assert (directory / "broker.log.1").stat().st_size <= 4_096
    assert "broker has stopped" in (directory / "broker.log").read_text()


@pytest.mark.parametrize(("key", "value"), [("bytes_max", 4_095), ("files_kept", 1_001)])
def test_an_invalid_bound_is_refused(tmp_path: Path, key: str, value: int) -> None:
    path = tmp_path / "log.toml"
    path.write_text(f"{key} = {value}")
    with pytest.raises(UsageError, match=key):
        read_toml(path, LogConfig)
