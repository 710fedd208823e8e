"""Where brokers and clients are sent to reach a broker."""

from __future__ import annotations

import msgspec
import pytest

from gapless.runtime import Address, BrokerSettings, Node
from gapless.runtime.overlay_config import single
from tests.runtime.nodes import run


@pytest.mark.parametrize(
    ("advertise", "configured", "expected"),
    [
        (None, None, "listening"),
        (None, Address("b1.example", 7400), "b1.example:7400"),
        (None, Address("0.0.0.0", 7400), "listening"),  # noqa: S104
        (Address("public.example", 7401), Address("b1.example", 7400), "public.example:7401"),
        (Address("::", 7401), Address("b1.example", 7400), "b1.example:7400"),
    ],
)
def test_others_are_sent_to_the_configured_address_of_a_broker(
    advertise: Address | None, configured: Address | None, expected: str
) -> None:
    # a broker that listens on all interfaces cannot be reached there from another computer
    addresses = {} if configured is None else {"b1": configured}
    overlay = msgspec.structs.replace(single(), addresses=addresses)

    async def scenario() -> tuple[str, str]:
        node = Node(BrokerSettings(overlay=overlay, advertise=advertise))
        await node.start()
        found, port = str(node.addresses["b1"]), node._address.port
        await node.stop()
        return found, f"127.0.0.1:{port}"

    found, listening = run(scenario())
    assert found == (listening if expected == "listening" else expected)
