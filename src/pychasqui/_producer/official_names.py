"""Names of the official package's Queue that are one call of something else here.

`queue.add`, `queue.dlq` and `queue.repeatables` can do more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from .._core import checks
from .._core.options import JobOptions
from ..errors import InvalidArgument
from ..job import Job

if TYPE_CHECKING:
    from .._core.repeat_pattern import RepeatPattern
    from ..dlq import DeadLetters
    from ..repeatables import RepeatableMeta, Repeatables

DEAD_LETTER_FIELDS = ("dlq_id", "source_id", "reason", "detail", "payload", "name")


class OfficialNames:
    """A part of Queue."""

    if TYPE_CHECKING:

        async def add(
            self,
            name: str,
            data: Any = None,
            *,
            job_id: str | None = None,
            wait_replicas: int = 0,
            **options: Unpack[JobOptions],
        ) -> Job: ...

        @property
        def dlq(self) -> DeadLetters: ...

        @property
        def repeatables(self) -> Repeatables: ...

    async def add_unique(
        self, name: str, data: Any = None, *, job_id: str, wait_replicas: int = 0, **options: Unpack[JobOptions]
    ) -> Job:
        """Adds one job with an id that must be given; otherwise as add()."""
        checks.check_new_job_id(job_id)
        return await self.add(name, data, job_id=job_id, wait_replicas=wait_replicas, **options)

    async def peek_dlq(self, limit: int = 20) -> list[dict[str, Any]]:
        """Returns the oldest dead letters as dicts; `dlq.page` shows more of them."""
        return [{key: getattr(job, key) for key in DEAD_LETTER_FIELDS} for job in await self.dlq.page(limit=limit)]

    async def replay_dlq(self, limit: int = 100) -> int:
        """Brings up to `limit` of the oldest dead jobs back and returns how many; `dlq.replay` can choose."""
        return await self.dlq.replay(limit=limit)

    async def upsert_repeatable_job(
        self,
        name: str,
        data: Any = None,
        *,
        repeat: RepeatPattern | dict[str, Any],
        job_id: str | None = None,
        **options: Any,
    ) -> Job:
        """Stores a repeatable as `repeatables.upsert` does; the returned job's id is the repeatable's key."""
        if job_id is not None:
            raise InvalidArgument(
                "job_id contradicts repeat: each fire is a job of its own; `key` names the repeatable"
            )
        meta = await self.repeatables.upsert(name, data, repeat=repeat, **options)
        return Job(meta.key, name, data)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """Returns the repeatables that fire next."""
        return await self.repeatables.page(limit)

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Removes a repeatable; False if there is none of that key."""
        return await self.repeatables.remove(key)
