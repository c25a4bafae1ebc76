"""An option that would be ignored is refused."""

from __future__ import annotations

import pytest

import romulus


def test_a_pool_of_an_operation_is_refused_rather_than_ignored() -> None:
    with pytest.raises(ValueError, match="operations have no pool="):

        @romulus.operation(pool="secrets")
        async def send(op: romulus.Operation) -> None: ...
