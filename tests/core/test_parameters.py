"""Parameters must satisfy the relations that the protocols need."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.core.parameters import DEFAULTS, Parameters, microseconds


def test_the_defaults_are_valid() -> None:
    assert Parameters() == DEFAULTS


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"heartbeat_ms": 375}, "heartbeat_ms .* less than session_timeout_ms"),
        ({"ack_ms": 667}, "ack_ms .* less than ack_report_ttl_ms"),
        ({"ended_membership_ttl_s": 2}, "ack_report_ttl_ms .* less than ended_membership_ttl_s"),
        ({"session_timeout_ms": 6_000}, "session_timeout_ms .* less than attach_expiry_ms"),
        ({"inactive_after_s": 6}, "attach_expiry_ms .* less than inactive_after_s"),
        ({"stale_table_ttl_s": 120}, "inactive_after_s .* less than stale_table_ttl_s"),
        ({"silence_ms": 3_000}, "silence_ms .* less than dct_ms"),
        ({"stream_epoch_interval_ms": 100}, "stream_epoch_interval_ms .* less than silence_ms"),
    ],
)
def test_a_broken_relation_is_refused_with_both_names(change: dict[str, int], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Parameters(**change)  # type: ignore[arg-type]  # all of these are numbers


def test_the_refusal_shows_the_values_in_one_unit_and_the_reason() -> None:
    with pytest.raises(UsageError) as caught:
        Parameters(ended_membership_ttl_s=2)
    assert str(caught.value) == (
        "parameters: ack_report_ttl_ms (2000 ms) must be less than ended_membership_ttl_s (2000 ms): "
        "an old report must not restore a membership that has ended"
    )


def test_the_number_of_cells_that_may_fail_is_not_negative() -> None:
    assert Parameters(delta=0).neighbourhood_radius == 1
    assert Parameters(delta=3).neighbourhood_radius == 4
    with pytest.raises(
        UsageError, match=r"parameters\.delta is -1: it must be a whole number from 0 to 16"
    ):
        Parameters(delta=-1)


def test_times_are_converted_to_microseconds() -> None:
    assert microseconds(ms=0.5) == 500
    assert microseconds(ms=1, s=2) == 2_001_000


def test_a_peer_that_restarts_is_dialled_sooner_than_a_silent_one_is_given_up() -> None:
    assert DEFAULTS.redial_max_ms < DEFAULTS.session_timeout_ms
