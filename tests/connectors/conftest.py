"""What every connector test does: pull a feed to its end, and look at an error's whole text."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from plait.connectors.contract import Feed
from plait.errors import PlaitError

Pull = Callable[[Feed], pa.Table]
Refusal = Callable[..., str]


@pytest.fixture
def pull() -> Pull:
    """All rows of a feed, lane after lane; checks what the contract says of chunks on the way."""

    def whole(feed: Feed) -> pa.Table:
        batches = []
        for lane in feed.lanes:
            expected: dict[str, int] = {}
            for chunk in lane.read():
                assert chunk.batch.schema.equals(feed.schema)
                assert chunk.first_row == expected.get(chunk.where, 0)
                expected[chunk.where] = chunk.first_row + chunk.batch.num_rows
                batches.append(chunk.batch)
        return pa.Table.from_batches(batches, feed.schema)

    return whole


@pytest.fixture
def refusal() -> Refusal:
    """The text of the error that a call raises: one line that says what, why and what to do."""

    def text(call: Callable[..., Any], *args: Any, **options: Any) -> str:
        with pytest.raises(PlaitError) as caught:
            call(*args, **options)
        message = str(caught.value)
        assert "\n" not in message.strip()
        return message

    return text
