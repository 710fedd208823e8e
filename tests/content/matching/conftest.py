"""Both engines run every test of the index."""

from __future__ import annotations

import pytest

from gapless.content import matching


@pytest.fixture(params=["compiled", "fallback"])
def kernel(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    if chosen == "compiled" and matching.COMPILED is None:
        pytest.skip("the compiled kernel was not built here")
    return chosen
