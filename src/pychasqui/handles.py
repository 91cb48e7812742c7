"""JobHandle: a job that was enqueued, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ._tasks.definition import TaskDefinition
from ._tasks.foreign_option_names import METHODS_OF_HANDLES, make_attribute_error
from ._tasks.loop_queues import LoopQueues
from ._tasks.results import convert_stored_result
from .cancellation import Cancellation

R_co = TypeVar("R_co", covariant=True)


class JobHandle(msgspec.Struct, Generic[R_co], eq=False, gc=False):
    """A job of a task: its id, and what its function returns.

    id             the job's id
    is_new         False if a job of this id existed already, and nothing was added
    has_replaced   True if that job was waiting, and now has this one's arguments
    """

    # hot: a Struct takes 0.2 us to build, an object with slots 0.7

    id: str
    _definition: TaskDefinition
    _queue_name: str
    _find_queue: LoopQueues
    is_new: bool = True
    has_replaced: bool = False

    @property
    def queue_name(self) -> str:
        return self._queue_name

    async def result(self, timeout: float = 30.0) -> R_co:  # noqa: ASYNC109  the name of Queue.wait_for_result
        """Waits for what the task returns, at most `timeout` seconds.

        Raises JobFailed as soon as the job is dead, ResultExpired or ResultNotStored if it is done without a result
        that is still there, and TimeoutError, which says where the job is. Results are kept on queues of which at
        least one task is annotated to return something.
        """
        value = await self._find_queue(self._queue_name).wait_for_result(self.id, timeout=timeout)
        result: R_co = convert_stored_result(self._definition, self.id, value)
        return result

    async def cancel(self) -> Cancellation:
        """Cancels the job, wherever it is, and returns what that has done; see Queue.cancel()."""
        return await self._find_queue(self._queue_name).cancel(self.id)

    async def progress(self) -> int | None:
        """Returns the progress that the task reported last, in per cent; None if it reported none."""
        return await self._find_queue(self._queue_name).get_job_progress(self.id)

    async def logs(self, *, limit: int = 100) -> list[str]:
        """Returns the last lines that the task logged with current_job().log(), oldest first."""
        return await self._find_queue(self._queue_name).get_job_logs(self.id, limit=limit)

    if not TYPE_CHECKING:  # type checkers would take it for a promise that every name exists

        def __getattr__(self, name: str) -> Any:
            raise make_attribute_error(self, name, METHODS_OF_HANDLES)

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, task={self._definition.name!r}, queue={self._queue_name!r})"


def make_handle(job: Any, definition: TaskDefinition, queue_name: str, find_queue: LoopQueues) -> JobHandle[Any]:
    """The handle of a job that Queue.add returned."""
    return JobHandle(job.id, definition, queue_name, find_queue, job.is_new, job.has_replaced)
