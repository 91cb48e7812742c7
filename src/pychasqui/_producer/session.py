"""QueueSession: everything of a Queue that lives on one event loop: connections, brokers and the sender."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING

from .._core import defaults
from .._core.cached_property import cached_property
from .._redis.connector import Connector
from .._redis.keys import Keys
from ..metrics import Record
from ..tracing import SpanOrigin
from .config import QueueConfig
from .encoder import Encoder
from .sender import Sender

if TYPE_CHECKING:
    from .._redis.dlq import DlqBroker
    from .._redis.events import EventsBroker
    from .._redis.inspector import InspectorBroker
    from .._redis.job_finder import JobFinderBroker
    from .._redis.repeatables import RepeatablesBroker
    from .._redis.results import ResultsBroker

MOVED_A_CALL = 500
_closing: set[asyncio.Future[None]] = set()  # of what was collected as garbage: the loop keeps no tasks by itself


class QueueSession:
    """Made when a Queue is first used on a loop, not before: the children of a fork must not share a ledger."""

    def __init__(
        self,
        config: QueueConfig,
        connector: Connector,
        encoder: Encoder,
        *,
        record_metric: Callable[[Record], None] | None,
        queue: object,
    ) -> None:
        keys = self._keys = Keys(config.name)
        self.loop = asyncio.get_running_loop()
        self.broker = connector.make_broker_on_shared_socket(keys, timeout_s=config.timeout_s)
        # Opened when replicas are awaited: WAIT holds up what is sent behind it.
        self._replicas_broker = connector.make_broker(keys, timeout_s=config.timeout_s)
        self.sender = Sender(
            self.broker,
            self._replicas_broker,
            encoder,
            config,
            record_metric=record_metric,
            origin=SpanOrigin(config.name, connector.first_host_and_port),
            queue=queue,
        )

    # Imported when they are first used: a process that only adds starts sooner.

    @cached_property
    def dlq(self) -> DlqBroker:
        from .._redis.dlq import DlqBroker

        return DlqBroker(self.broker, self._keys)

    @cached_property
    def inspector(self) -> InspectorBroker:
        from .._redis.inspector import InspectorBroker

        return InspectorBroker(self.broker, self._keys, defaults.GROUP)

    @cached_property
    def job_finder(self) -> JobFinderBroker:
        from .._redis.job_finder import JobFinderBroker

        return JobFinderBroker(self.broker, self._keys)

    @cached_property
    def repeatables(self) -> RepeatablesBroker:
        from .._redis.repeatables import RepeatablesBroker

        return RepeatablesBroker(self.broker, self._keys)

    @cached_property
    def results(self) -> ResultsBroker:
        from .._redis.results import ResultsBroker

        return ResultsBroker(self.broker, self._keys)

    @cached_property
    def events(self) -> EventsBroker:
        from .._redis.events import EventsBroker

        return EventsBroker(self.broker, self._keys)

    async def cancel_or_move_delayed(self, action: str, job_ids: list[str], delay_ms: int) -> list[bool]:
        """Cancels, postpones or runs delayed jobs, some hundred in one script call."""
        found: list[bool] = []
        for start in range(0, len(job_ids), MOVED_A_CALL):
            found += await self.broker.cancel_or_move_delayed(action, job_ids[start : start + MOVED_A_CALL], delay_ms)
        return found

    async def close(self) -> None:
        """Waits for adds that are in flight, then closes the connections."""
        await self.sender.close()
        await self.broker.close()
        await self._replicas_broker.close()


def schedule_close_if_loop_is_open(
    loop: asyncio.AbstractEventLoop, close: Callable[[], Coroutine[object, object, None]]
) -> None:
    """Has the loop close what was collected as garbage without a close, perhaps in another thread."""
    if not loop.is_closed():
        with suppress(RuntimeError):  # the loop is closed meanwhile
            loop.call_soon_threadsafe(_start_closing, close)


def _start_closing(close: Callable[[], Coroutine[object, object, None]]) -> None:
    task = asyncio.ensure_future(close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
