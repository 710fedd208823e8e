"""The axes of experiments: invalid values are refused in one line before any measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.core.errors import UsageError
from gapless_lab.lab.axes import POINTS_MAX, NumberAxis, OneOf, Relation, Whole, checked_points
from gapless_lab.lab.catalogue import EXPERIMENTS, find
from gapless_lab.lab.points import Plain, parse_axes

TINY_10 = ["brokers=20", "publishers=2", "subscribers=5"]


@pytest.mark.parametrize(
    ("name", "axes", "message"),
    [
        ("pt-9", ["brokers=0"], "brokers cannot be 0; it takes a whole number from 2 to 10,000"),
        ("pt-9", ["brokers=1", "failed=0"], "brokers cannot be 1; it takes"),
        ("pt-9", ["brokers=abc"], "brokers cannot be 'abc'; it takes a whole number"),
        ("pt-9", ["brokers=true"], "brokers cannot be true; it takes a whole number"),
        ("pt-9", ["brokers=100,200"], "brokers takes one value a run"),
        ("pt-9", ["failed=999", "brokers=20"], "brokers 20, failed 999 cannot be: at least two"),
        ("pt-9", ["failed=19", "brokers=20"], "at least two brokers must not fail"),
        ("pt-9", ["failed=1.5"], "failed cannot be 1.5; it takes a whole number from 0"),
        ("pt-9", ["delta=-1"], "delta cannot be -1; it takes a whole number from 0 to 10"),
        ("pt-9", ["delta=1,2,1"], "delta has a value twice"),
        ("pt-9", ["fan_out=1"], "fan_out cannot be 1; it takes a whole number from 2"),
        ("pt-9", ["runs=0"], "runs cannot be 0; it takes a whole number from 1"),
        ("pt-10", ["publishers=0"], "publishers cannot be 0; it takes a whole number from 1"),
        ("pt-10", ["failed_percent=150"], "failed_percent cannot be 150; it takes"),
        ("pt-10", [*TINY_10, "failed_percent=95"], "publishers are at live brokers"),
        ("pt-10", [*TINY_10, "subscribers=21"], "subscribers are at different brokers"),
        (
            "pt-10",
            ["brokers=20", "publishers=1", "subscribers=1", "failed_percent=95"],
            "no subscriber is at a live broker",
        ),
        ("pt-10", ["window_s=0"], "window_s cannot be 0"),
        (
            "pt-11",
            ["counts_as=both"],
            "counts_as cannot be 'both'; it takes neighbours or children",
        ),
        ("pt-11", ["delta=99"], "delta cannot be 99"),
        ("pt-12", ["brokers=20", "failed=20"], "at least one broker must not fail"),
        ("gd-6", ["down_s=-3"], "down_s cannot be -3; it takes a number from 3 to 3,600"),
        ("gd-7", ["down_s=nan"], "down_s cannot be nan"),
        ("gd-8", ["down_s=inf"], "down_s cannot be inf"),
        ("gd-8", ["down_s=4,5"], "down_s takes one value a run"),
        ("vt-6.17", ["run=-1"], "run cannot be -1; it takes a whole number from 0 to 999"),
        ("failover", ["seen=foo"], "seen cannot be 'foo'; it takes unseen or reported"),
        ("failover", ["case=foo"], "case cannot be 'foo'; it takes broker of a bundle or"),
        (
            "failover",
            ["dead_ms=3"],
            "dead_ms cannot be 3; it takes a whole number from 60 to 14,999",
        ),
    ],
)
def test_values_that_cannot_be_measured_are_refused_in_one_line(
    name: str, axes: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    named = dict(axis.split("=", 1) for axis in axes)  # the last one of a name counts here
    grid = [word for axis, values in named.items() for word in ("--grid", f"{axis}={values}")]
    assert main(["lab", "run", name, *grid, "--out", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    line = " ".join(shown.err.split())
    assert f"{name}: " in line
    assert message in line
    assert "Traceback" not in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_axis_accepts_the_default_points(name: str) -> None:
    experiment = find(name)
    assert list(experiment.kinds) == list(experiment.full)
    assert experiment.points()
    assert experiment.points(quick=True)
    known = set(experiment.full)
    assert all(known >= set(relation.axes) for relation in experiment.relations)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("pt-9", ["brokers=2", "failed=0", "delta=10", "fan_out=2,100", "runs=1"]),
        ("pt-9", ["brokers=20", "failed=18", "delta=3,0", "runs=1"]),
        ("pt-11", ["brokers=2", "fan_out=2,3,7", "delta=3"]),
        ("pt-11", ["brokers=9", "counts_as=children"]),
        ("pt-12", ["brokers=2", "failed=1,0", "fan_out=2", "runs=1"]),
        ("gd-6", ["down_s=3"]),
        ("gd-7", ["down_s=3.5"]),
        ("gd-8", ["down_s=3"]),
        ("pt-10", ["brokers=2", "publishers=1", "subscribers=2", "window_s=1", "delta=3"]),
        ("failover", ["dead_ms=60", "run=7"]),
    ],
)
def test_values_at_the_limits_are_measured_and_reported(
    name: str, axes: list[str], tmp_path: Path
) -> None:
    grid = [word for axis in axes for word in ("--grid", axis)]
    assert main(["lab", "run", name, "--quick", *grid, "--out", str(tmp_path)]) == 0
    assert (tmp_path / name / "README.md").exists()


# --- the kinds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (Whole(1, 3), [1, 3], [0, 4, 1.0, True, "2", None]),
        (NumberAxis(1, 3), [1, 2.5, 3], [0.9, 10**400, float("nan"), True, "2", None]),
        (OneOf(("reported", "unseen")), ["reported"], ["", "rep", 1, None]),
    ],
)
def test_a_kind_accepts_the_values_within_its_bounds(
    kind: Whole | NumberAxis | OneOf, taken: list[Plain], refused: list[Plain]
) -> None:
    assert all(kind.takes(value) for value in taken)
    assert not any(kind.takes(value) for value in refused)


def test_an_axis_without_values_is_refused() -> None:
    with pytest.raises(UsageError, match="a has no value; it takes a whole number from 0 to 9"):
        checked_points({"a": ()}, {"a": Whole(0, 9)}, ())


def test_too_many_points_are_refused_before_they_are_created() -> None:
    axes = {"a": range(1_000), "b": range(1_000)}
    kinds = dict.fromkeys(axes, Whole(0, 999))
    with pytest.raises(UsageError, match=f"1,000,000 points; a run has {POINTS_MAX:,} at most"):
        checked_points(axes, kinds, ())


def test_a_relation_that_is_broken_at_one_point_names_its_values() -> None:
    less = Relation(("a", "b"), lambda point: point["a"] != point["b"], "they differ")
    kinds = dict.fromkeys(("a", "b"), Whole(0, 9))
    with pytest.raises(UsageError, match=r"^a 2, b 2 cannot be: they differ$"):
        checked_points({"a": (1, 2), "b": (2, 3)}, kinds, (less,))


def test_a_repeated_axis_is_refused() -> None:
    assert parse_axes(["a=1", "b=2..3"]) == {"a": [1], "b": [2, 3]}
    with pytest.raises(UsageError, match="the axis a is given twice; write its values as a=1,2,3"):
        parse_axes(["a=1", "b=2", " a =1"])
