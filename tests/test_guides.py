"""The guides are correct: their Python runs against real brokers, and their tables are complete."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gapless
from gapless.core.parameters import Parameters
from gapless.runtime import config, overlay_config
from gapless.runtime.metrics import Metrics
from gapless.runtime.principals import load_tokens
from gapless.testing import Overlay, SyncOverlay
from tests.guides import ROOT, blocks, with_brokers

RUN = ["README.md", "docs/tutorial.md", "docs/client.md"]
OPERATIONS = (ROOT / "docs/operations.md").read_text()
CLIENT = (ROOT / "docs/client.md").read_text()


def prepared(block: str, overlay: SyncOverlay) -> str:
    """Return a block for the brokers of a test; the event loop of the test is already running."""
    return with_brokers(block, overlay).replace("asyncio.run(main())", "await main()")


async def run_blocks(page: str, overlay: SyncOverlay) -> int:
    """Run the blocks of a page one after the other, as one program."""
    names: dict[str, Any] = {"__name__": "guide"}
    found = blocks(page)
    for line, block in found:
        source = "\n" * line + prepared(block, overlay)
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)  # noqa: S307  # our own page
        if inspect.isawaitable(result):
            async with asyncio.timeout(60):
                await result
    return len(found)


@pytest.mark.parametrize("page", RUN)
def test_the_python_of_a_guide_runs_against_real_brokers(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncOverlay("line:3") as overlay:
        assert asyncio.run(run_blocks(page, overlay)) > 0
    capsys.readouterr()


def test_the_guides_run_in_any_order_and_twice_with_the_same_brokers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with SyncOverlay("line:3") as overlay:
        for page in [*RUN, *reversed(RUN)]:  # each pair in both orders
            assert asyncio.run(run_blocks(page, overlay)) > 0
            shown = capsys.readouterr().out
            if page == "README.md":
                assert shown.startswith("{'symbol': 'IBM', 'price': 91.5} b'the payload' ")


def test_a_block_that_does_not_run_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nassert await wrong()\n```\n")
    with SyncOverlay(on_disk=False) as overlay, pytest.raises(NameError, match="wrong"):
        asyncio.run(run_blocks(str(page), overlay))


def first_cells(text: str) -> set[str]:
    """Return the texts in backquotes in the first column of tables."""
    rows = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("call", [gapless.connect, "publisher", "subscribe"])
def test_the_client_guide_names_every_option_of_a_call(call: Any) -> None:
    function = getattr(gapless.client.Session, call) if isinstance(call, str) else call
    options = inspect.signature(function).parameters
    assert set(options) - {"self"} <= first_cells(CLIENT)
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w.\"]+)`? \|", CLIENT, re.MULTILINE))
    for name, option in options.items():
        if name in rows and isinstance(option.default, str | int | float) and option.default != "":
            assert rows[name].strip('"') == str(option.default), name


def test_the_client_guide_names_every_error() -> None:
    public = {name for name in gapless.errors.__all__ if name != "GaplessError"}
    missing = {name for name in public if f"`{name}`" not in CLIENT}
    assert not missing


def test_operations_name_every_parameter_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w,]+) \|", OPERATIONS, re.MULTILINE))
    for field in msgspec.structs.fields(Parameters):
        default = field.default
        shown = str(default).lower() if isinstance(default, bool) else f"{default:,}"
        assert rows.get(field.name) == shown, field.name


def test_operations_name_every_key_of_the_files() -> None:
    keys = {field.encode_name for field in msgspec.structs.fields(config._BrokerFile)} - {"log"}
    keys |= {field.encode_name for field in msgspec.structs.fields(overlay_config._OverlayFile)}
    keys |= {field.encode_name for field in msgspec.structs.fields(config.LogConfig)}
    missing = {key for key in keys if not re.search(rf"`(log\.)?{key}`", OPERATIONS)}
    assert not missing


def test_the_files_in_operations_can_be_read(tmp_path: Path) -> None:
    shown = [
        textwrap.dedent(block)
        for block in re.findall(r"^```toml\n(.*?)^```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    ]
    overlay, broker, access, tokens = shown
    (tmp_path / "trading.toml").write_text(overlay)
    (tmp_path / "l1.toml").write_text(broker)
    loaded = config.load_config(tmp_path / "l1.toml")
    assert loaded.settings.cell == "london"
    (tmp_path / "l1.toml").write_text(broker + access)
    (tmp_path / "tokens.toml").write_text(tokens)
    found = config.load_config(tmp_path / "l1.toml").settings.access
    assert found is not None
    assert [each.principal for each in load_tokens(Path(found.tokens))] == ["alice"]


def test_operations_name_every_metric() -> None:
    async def text() -> str:
        async with Overlay(on_disk=False) as overlay:
            return Metrics(overlay.node("b1")).text().decode()

    metrics = set(re.findall(r"^# HELP (\S+)", asyncio.run(text()), re.MULTILINE))
    assert len(metrics) > 10
    named = first_cells(OPERATIONS)
    assert metrics <= named, metrics - named
    assert {name for name in named if name.startswith("gapless_")} <= metrics
