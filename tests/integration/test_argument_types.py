"""An argument of a wrong type is refused with what it must be, by every public method that looks into it."""

from __future__ import annotations

from typing import Any

import pytest

from pychasqui import App, InvalidArgument, InvalidType, Queue

HIGHEST_ID = "18446744073709551615-18446744073709551615"


@pytest.mark.parametrize("which", ({"ids": [1]}, {"ids": b"x"}, {"up_to": 5}, {"name": 5}, {"rate": "x"}, {"rate": []}))
async def test_a_replay_by_a_wrong_type_is_refused(queue: Queue, which: dict[str, Any]) -> None:
    with pytest.raises((InvalidType, InvalidArgument), match=r"must be a (str|number of jobs a second), not"):
        await queue.dlq.replay(**which)


async def test_letters_of_wrong_types_are_refused(queue: Queue) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidType, match="the id of a dead letter must be a str, not int"):
        await queue.dlq.page(after=wrong)
    with pytest.raises(InvalidType, match="must be a str, not int"):
        await queue.dlq.replay_with(wrong, {})
    with pytest.raises(InvalidType, match="letters must be a list of DeadJob"):
        await queue.dlq.restore(wrong)
    with pytest.raises(InvalidType, match="takes DeadJobs, as page"):
        await queue.dlq.restore([wrong])


async def test_no_letter_is_behind_the_highest_id(queue: Queue) -> None:
    assert await queue.dlq.page(after=HIGHEST_ID) == []


async def test_values_that_are_no_lists_are_refused(queue: Queue) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidType, match="jobs must be a list of mappings"):
        await queue.add_bulk(wrong)
    app = App("redis://no-server.invalid")
    with pytest.raises(InvalidType, match=r"calls must be a list of what task\.bind"):
        await app.enqueue_all(wrong)
    with pytest.raises(InvalidType, match="queues must be a list of names, not int"):
        app.worker(wrong)
    with pytest.raises(InvalidType, match="modules must be a list of names, not int"):
        App(modules=wrong)
