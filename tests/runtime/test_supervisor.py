"""Real processes: started, killed, restarted and stopped without loss."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gapless.core.errors import DirectoryLockedError, UsageError
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    PublisherOpened,
    StartKind,
    StartPoint,
)
from gapless.runtime import (
    BrokerStartError,
    ProcessEvent,
    ProcessStage,
    Supervisor,
    generate,
    load_overlay,
    overlay_of,
)
from gapless.runtime import supervisor as supervising
from gapless.runtime.process import EXIT_DISK, EXIT_STOPPED, EXIT_WRONG_INPUT, Ready
from gapless.storage.lock import DirectoryLock
from tests.runtime.nodes import LOOPS, run, until
from tests.runtime.raw_client import DEADLINE_S, RawClient


class Publisher:
    """Publishes numbers one after the other, across failures of its broker."""

    def __init__(self, supervisor: Supervisor, broker: str) -> None:
        self._supervisor = supervisor
        self._broker = broker
        self.published = 0

    async def publish_up_to(self, last: int) -> None:
        while self.published < last:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with RawClient(self._supervisor[self._broker].url) as client:
                    await self._continue(client, last)
            await asyncio.sleep(0.02)

    async def _continue(self, client: RawClient, last: int) -> None:
        await client.request(PubendOpened, OpenPubend(client.number(), "trades"))
        opened = await client.request(
            PublisherOpened, OpenPublisher(client.number(), PubendId("trades"), "desk")
        )
        self.published = opened.last_sequence
        while self.published < last:
            await client.publish("trades", opened.session, self.published + 1)
            self.published += 1


class Subscriber:
    """Reads and acknowledges a durable subscription, across failures of its broker."""

    def __init__(self, supervisor: Supervisor, broker: str) -> None:
        self._supervisor = supervisor
        self._broker = broker
        self.started = asyncio.Event()
        self.seen: list[int] = []

    async def read(self, count: int) -> None:
        while len(self.seen) < count:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with RawClient(self._supervisor[self._broker].url) as client:
                    # from the earliest: its broker may not know the pubend yet
                    start = StartPoint(StartKind.EARLIEST)
                    await client.subscribe("all", durable=True, start=start)
                    self.started.set()
                    while len(self.seen) < count:
                        for number in await client.events(1):
                            if number not in self.seen:  # the acknowledgement was not on disk
                                self.seen.append(number)
                        client.acknowledge("all", "trades")
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_publisher_and_a_subscriber_lose_no_event_when_brokers_are_killed(
    loop: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        happened: list[ProcessEvent] = []
        supervisor = Supervisor(generate("line:3"), tmp_path, port=0, on_event=happened.append)
        async with supervisor, asyncio.timeout(3 * DEADLINE_S):
            publisher = Publisher(supervisor, "b1")
            subscriber = Subscriber(supervisor, "b3")
            await publisher.publish_up_to(1)
            reading = asyncio.create_task(subscriber.read(61))
            await subscriber.started.wait()
            for victim, last in (("b2", 20), ("b1", 40), ("b3", 61)):
                before = supervisor[victim].pid
                supervisor.kill(victim)
                await publisher.publish_up_to(last)
                await until(lambda: supervisor[victim].pid not in {None, before})  # noqa: B023
            await reading
            assert subscriber.seen == list(range(1, 62))
            assert [each.restarts for each in supervisor.brokers] == [1, 1, 1]
            pids = [each.pid for each in supervisor.brokers]
        assert [each.stage for each in supervisor.brokers] == [ProcessStage.STOPPED] * 3
        for pid in pids:
            assert pid is not None
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        died = [each for each in happened if each.stage is ProcessStage.DIED]
        assert [each.broker for each in died] == ["b2", "b1", "b3"]
        assert all("SIGKILL" in each.detail for each in died)

    run(scenario(), loop)


def test_a_restarted_broker_keeps_its_metrics_port(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Supervisor(generate("line:2"), tmp_path, port=0) as supervisor:
            broker, other = supervisor.brokers
            before = broker.metrics_url
            assert before is not None
            assert other.metrics_url not in {None, before}
            supervisor.kill("b1")
            await until(lambda: broker.metrics_url is None)
            await until(lambda: broker.stage is ProcessStage.READY)
            assert broker.metrics_url == before
            output = broker.log_path.read_text()
            assert output.count(f"metrics={before}/metrics") == 2

    run(scenario())


def test_without_metrics_no_broker_serves_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Supervisor(generate("line:1"), tmp_path, port=0, metrics=False) as supervisor:
            assert supervisor["b1"].metrics_url is None
            assert "metrics" not in supervisor["b1"].config_path.read_text()

    run(scenario())


def test_brokers_are_stopped_in_order_the_last_one_first(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        happened: list[ProcessEvent] = []
        async with Supervisor(generate("line:2"), tmp_path, port=0, on_event=happened.append):
            pass
        return [each.broker for each in happened if each.stage is ProcessStage.STOPPED]

    assert run(scenario()) == ["b2", "b1"]
    assert "broker has stopped" in (tmp_path / "b1" / "broker.log").read_text()


def test_a_broker_is_not_restarted_if_restarts_are_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Supervisor(generate("line:1"), tmp_path, port=0, restart=False) as supervisor:
            supervisor.kill("b1")
            await until(lambda: supervisor["b1"].stage is ProcessStage.FAILED)

    run(scenario())


def test_a_broker_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor(
            generate("line:2"), tmp_path, port=0, parameters={"heartbeat_ms": 5_000}
        )
        with pytest.raises(
            BrokerStartError, match=r"(?s)b1 cannot start.*session_timeout_ms"
        ) as caught:
            await supervisor.start()
        assert caught.value.exit_code == EXIT_WRONG_INPUT

    run(scenario())


def test_a_broker_whose_log_cannot_be_written_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "b1" / "broker.log").mkdir(parents=True)
        with pytest.raises(BrokerStartError, match=r"(?s)b1 cannot start.*broker\.log") as caught:
            await Supervisor(generate("line:1"), tmp_path, port=0).start()
        assert caught.value.exit_code == EXIT_DISK

    run(scenario())


def test_the_directories_of_an_overlay_are_private_to_their_owner(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        async with Supervisor(generate("line:1"), data, port=0):
            for made in (data, data / "b1", data / "b1" / "store"):
                assert made.stat().st_mode & 0o077 == 0

    run(scenario())


def test_a_directory_of_another_overlay_is_refused(tmp_path: Path) -> None:
    async def scenario(words: str) -> None:
        async with Supervisor(generate(words), tmp_path, port=0):
            pass

    run(scenario("line:1"))
    with pytest.raises(UsageError, match="holds another overlay"):
        run(scenario("line:2"))
    run(scenario("line:1"))


def files(data: Path) -> dict[Path, bytes]:
    """Return the contents of the configuration files of the brokers."""
    return {path: path.read_bytes() for path in sorted(data.rglob("*.toml"))}


def test_another_delta_is_refused_and_no_file_is_changed(tmp_path: Path) -> None:
    async def scenario(delta: int) -> None:
        async with Supervisor(overlay_of("line:2", delta=delta), tmp_path, port=0):
            pass

    run(scenario(1))
    before = files(tmp_path)
    with pytest.raises(UsageError, match=r"its delta is 1, not 2"):
        run(scenario(2))
    assert files(tmp_path) == before
    run(scenario(1))


def test_a_running_overlay_is_refused_and_not_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Supervisor(generate("line:2"), tmp_path, port=0) as first:
            before = files(tmp_path)
            for words in ("line:2", "line:3"):
                with pytest.raises(
                    DirectoryLockedError, match=f"{tmp_path} is in use by process"
                ) as caught:
                    await Supervisor(overlay_of(words, delta=3), tmp_path, port=0).start()
                assert caught.value.holder == str(os.getpid())
            assert files(tmp_path) == before
            first.kill("b1")
            await until(
                lambda: first["b1"].restarts == 1 and first["b1"].stage is ProcessStage.READY
            )

    run(scenario())
    run(scenario())  # the directory is unlocked again


def test_the_directory_is_unlocked_when_an_overlay_cannot_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "b1" / "store").mkdir(parents=True)
        held = DirectoryLock(tmp_path / "b1" / "store")
        with pytest.raises(BrokerStartError, match="is in use by process") as caught:
            await Supervisor(generate("line:1"), tmp_path, port=0).start()
        assert caught.value.exit_code == EXIT_DISK
        held.release()
        async with Supervisor(generate("line:1"), tmp_path, port=0):
            pass

    run(scenario())


def test_an_invalid_token_file_is_refused_before_any_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        data = tmp_path / "data"
        with pytest.raises(UsageError, match=r"none\.toml"):
            await Supervisor(
                generate("line:1"), data, port=0, tokens=tmp_path / "none.toml"
            ).start()
        assert not data.exists()

    run(scenario())


@pytest.mark.parametrize("name", ["overlay.toml", "overlay.lock", "broker.token"])
def test_a_broker_is_not_named_like_a_file_of_the_overlay(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[cells]\na = ["{name}"]\n')
    with pytest.raises(UsageError, match=f"a broker cannot be named {name}"):
        Supervisor(load_overlay(path), tmp_path / "data", port=0)


def test_a_broker_that_refuses_its_configuration_is_given_up_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "REFUSALS", 2)

    async def scenario() -> None:
        happened: list[ProcessEvent] = []
        supervisor = Supervisor(generate("line:2"), tmp_path, port=0, on_event=happened.append)
        async with supervisor:
            happened.clear()
            supervisor["b1"].config_path.write_text("nonsense = 1")
            supervisor.kill("b1")
            await until(lambda: supervisor["b1"].stage is ProcessStage.FAILED)
            assert supervisor["b2"].stage is ProcessStage.READY
        details = [
            each.detail
            for each in happened
            if each.stage in {ProcessStage.DIED, ProcessStage.FAILED}
        ]
        assert len(details) == 3
        assert details[0].startswith("killed by SIGKILL; starts again in ")
        assert "exit code 2: " in details[1]
        assert "there is no key `nonsense`" in details[1]
        assert "starts again in" in details[1]
        assert "there is no key `nonsense`" in details[2]
        assert details[2].endswith("; not restarted")

    run(scenario())


def test_a_broker_whose_disk_fails_is_restarted_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "REFUSALS", 1)

    async def scenario() -> None:
        happened: list[ProcessEvent] = []
        supervisor = Supervisor(generate("line:1"), tmp_path, port=0, on_event=happened.append)
        async with supervisor:
            supervisor.prevent_restart("b1")
            supervisor.kill("b1")
            await until(lambda: supervisor["b1"].stage is ProcessStage.DIED)
            held = DirectoryLock(tmp_path / "b1" / "store")
            supervisor.allow_restart("b1")
            await until(lambda: supervisor["b1"].restarts >= 3)
            held.release()
            await until(lambda: supervisor["b1"].stage is ProcessStage.READY)
        died = [each.detail for each in happened if each.stage is ProcessStage.DIED]
        assert len(died) >= 3
        assert all("exit code 3: " in each and "is in use by process" in each for each in died[1:])

    run(scenario())


def test_ports_follow_the_first_one(tmp_path: Path) -> None:
    supervisor = Supervisor(generate("line:3"), tmp_path, port=7_400)
    assert supervisor.urls == [f"gapless://127.0.0.1:{port}" for port in (7_400, 7_401, 7_402)]
    with pytest.raises(UsageError, match="choose a lower one"):
        Supervisor(generate("line:3"), tmp_path, port=65_534)


# --- one process ---------------------------------------------------------------------------------


def start(directory: Path, *options: str, text: str = "") -> subprocess.Popen[bytes]:
    path = directory / "broker.toml"
    path.write_text(text or 'name = "b1"\ndata = "store"\nlisten = "127.0.0.1:0"\n')
    command = [sys.executable, "-m", "gapless.runtime", str(path), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def ready(process: subprocess.Popen[bytes]) -> Ready:
    assert process.stdout is not None
    return msgspec.json.decode(process.stdout.readline(), type=Ready)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_broker_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with start(tmp_path, "--supervised") as process:
        assert ready(process).pid == process.pid
        process.send_signal(number)
        assert process.wait(timeout=DEADLINE_S) == EXIT_STOPPED
        assert process.stderr is not None
        output = process.stderr.read()
        assert b"broker has stopped" in output
        assert number.name.encode() in output
        assert b"Traceback" not in output


def test_a_broker_stops_when_its_supervisor_has_ended(tmp_path: Path) -> None:
    with start(tmp_path, "--supervised") as process:
        ready(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=DEADLINE_S) == EXIT_STOPPED


def test_a_mistake_in_the_file_has_its_exit_code_and_no_traceback(tmp_path: Path) -> None:
    with start(tmp_path, text="nonsense = 1") as process:
        _, output = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == EXIT_WRONG_INPUT
        assert b"no key `nonsense`" in output
        assert b"Traceback" not in output
