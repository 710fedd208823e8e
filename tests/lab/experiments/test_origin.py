"""Reports name the code that an experiment runs, by digests of exactly that code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gapless_lab.lab import origin
from gapless_lab.lab.catalogue import EXPERIMENTS, find
from gapless_lab.lab.experiment import GRAPH, MACHINE
from gapless_lab.lab.origin import origin_of
from gapless_lab.lab.points import Point, Row
from gapless_lab.lab.present import main, present
from gapless_lab.lab.results import ResultStore
from gapless_lab.lab.running import ExperimentRun


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a few files that replace the sources."""
    held = {
        "gapless/broker/entry.py": "one = 1",
        "gapless/broker/fast.pyx": "two = 2",
        "gapless/wire/codec.py": "three = 3",
        "gapless_lab/lab/mine.py": "from gapless_lab.lab.shared import four",
        "gapless_lab/lab/shared.py": "four = 4",
        "gapless_lab/lab/yours.py": "five = 5",
    }
    for name, text in held.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(origin, "ROOT", tmp_path)
    return tmp_path


def mine(point: Point) -> Row:
    """Return the row of a measurement that pretends to be part of the lab."""
    return point


mine.__module__ = "gapless_lab.lab.mine"


def digests() -> tuple[str, str]:
    planted = msgspec.structs.replace(find("pt-9"), packages=("gapless/broker",), measure=mine)
    found = origin_of(planted, "1.0")
    return found.machine, found.experiment


@pytest.mark.parametrize(
    "name", ["gapless/wire/codec.py", "gapless_lab/lab/yours.py", "gapless/broker/fast.so"]
)
def test_files_that_an_experiment_does_not_run_and_compiled_files_do_not_count(
    package: Path, name: str
) -> None:
    before = digests()
    (package / name).write_text("changed")
    assert digests() == before


@pytest.mark.parametrize(
    "name", ["gapless/broker/entry.py", "gapless/broker/fast.pyx", "gapless/broker/added.py"]
)
def test_a_changed_source_of_the_machine_changes_its_digest(package: Path, name: str) -> None:
    machine, experiment = digests()
    (package / name).write_text("changed = 1")
    assert digests()[0] != machine
    assert digests()[1] == experiment


@pytest.mark.parametrize("name", ["gapless_lab/lab/mine.py", "gapless_lab/lab/shared.py"])
def test_a_changed_file_of_the_experiment_keeps_the_digest_of_the_machine(
    package: Path, name: str
) -> None:
    machine, experiment = digests()
    (package / name).write_text("changed = 1")
    assert digests()[0] == machine
    assert digests()[1] != experiment


def loaded(*modules: str) -> set[str]:
    """Return the files of gapless that some modules import, in a fresh process."""
    code = f"import sys, {', '.join(modules)}; print(*(k for k in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return {
        name.replace(".", "/") for name in found if name.startswith(("gapless.", "gapless_lab."))
    }


@pytest.mark.parametrize(
    ("packages", "modules"),
    [
        (MACHINE, ("gapless_lab.lab.catalogue", "gapless.broker")),
        (GRAPH, ("gapless_lab.lab.pt_9", "gapless_lab.lab.pt_11", "gapless_lab.lab.pt_12")),
    ],
)
def test_all_imported_code_is_in_the_digest(
    packages: tuple[str, ...], modules: tuple[str, ...]
) -> None:
    known = {package.removesuffix(".py") for package in packages} | {"gapless_lab/lab"}
    others = {
        name
        for name in loaded(*modules)
        if not any(name == package or name.startswith(f"{package}/") for package in known)
    }
    # a module that only collects names, and a package whose one file is counted
    assert others <= {"gapless/errors", "gapless_lab/sim"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_machine_and_files_of_its_own(name: str) -> None:
    experiment = find(name)
    assert experiment.packages in {MACHINE, GRAPH}
    assert all((origin.ROOT / package).exists() for package in experiment.packages)
    here = origin_of(experiment, "1.0")
    same = [each.name for each in EXPERIMENTS.values() if origin_of(each, "1.0") == here]
    assert same == [name]


def test_a_report_names_its_code_and_is_compared_with_the_present_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("pt-9", "pt-11", "pt-12", "gd-6"):
        store = ResultStore(tmp_path / name, "1.0+of-everything")
        store.write(*ExperimentRun(find(name), find(name).points(quick=True), store).report())
    here = origin_of(find("pt-9"), "1.0")
    page = tmp_path / "pt-9" / "README.md"
    assert f"Of gapless 1.0, {here.digests} (" in page.read_text().splitlines()[-1]
    page = tmp_path / "pt-11" / "README.md"
    page.write_text(page.read_text().replace(origin_of(find("pt-11"), "").experiment, "0" * 12))
    page = tmp_path / "pt-12" / "README.md"
    page.write_text(page.read_text().replace(here.machine, "0" * 12))
    (tmp_path / "gd-6" / "README.md").write_text("older than this")
    assert dict(present(tmp_path)) == {
        "gd-6": "names no code",
        "pt-9": "of the code here",
        "pt-11": "of the same machine; the experiment's own code has changed",
        "pt-12": "of another machine",
    }
    assert main([str(tmp_path)]) == 0
    assert "pt-9       of the code here" in capsys.readouterr().out
    assert main([]) == 2
