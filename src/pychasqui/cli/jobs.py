"""`chasqui jobs`: the jobs of one state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import printable
from .known_queues import explain_empty_queue
from .options import CommandContext, add_common_options, make_limit_option, queue_argument
from .tables import Column
from .values import Kind, make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..inspector import JobView, State


STATES = ("waiting", "active", "delayed", "dead")
PAGE = 500
MAX_SEARCHED = 100_000  # jobs that are read to find those of one name
ID = Column("id", "id")
NAME = Column("name", "name", shrinks=True)
ATTEMPT = Column("attempt", "run", Kind.COUNT)
DATA = Column("data", "data", Kind.DATA, shrinks=True)
COLUMNS = {
    "waiting": (ID, NAME, ATTEMPT, Column("created_at_ms", "added", Kind.TIME), DATA),
    "active": (ID, NAME, ATTEMPT, Column("worker", "worker", shrinks=True), Column("idle_ms", "seen", Kind.SPAN), DATA),
    "delayed": (ID, NAME, ATTEMPT, Column("due_at_ms", "due", Kind.TIME), DATA),
    "dead": (ID, NAME, ATTEMPT, Column("reason", "reason", shrinks=True), Column("error", "error", shrinks=True), DATA),
}


@click.command()
@queue_argument
@click.option(
    "-s", "--state", type=click.Choice(STATES), default="waiting", show_default=True, help="The state of the jobs."
)
@click.option("--name", default=None, help="Only jobs of this name.")
@make_limit_option(20)
@click.option("--after", metavar="POSITION", default="", help="Go on behind this position, which --json calls next.")
@add_common_options
def jobs(context: CommandContext, queue_name: str, state: str, name: str | None, limit: int, after: str) -> None:
    """Show the jobs of one state.

    The oldest come first; delayed jobs by the time at which they are due. Active jobs are given to a worker: they run,
    or are about to. With --name it looks through the first 100,000 jobs of the state.
    """
    context.run(_print_jobs(context, queue_name, cast("State", state), name, limit, after))


async def _print_jobs(
    context: CommandContext, queue_name: str, state: State, name: str | None, limit: int, after: str
) -> None:
    found: list[JobView] = []
    position: str | None = after
    searched, max_searched = 0, MAX_SEARCHED if name is not None else limit
    async with context.make_queue(queue_name) as queue:
        while position is not None and len(found) < limit and searched < max_searched:
            count = PAGE if name is not None else min(PAGE, limit - len(found))
            page = await queue.jobs(state, after=position, limit=count)
            found += [job for job in page.jobs if name is None or job.name == name]
            searched += len(page.jobs)
            position = page.next
    if position is not None and name is not None and searched >= max_searched:
        context.output.print_message_to_stderr(f"only the first {searched:,} jobs were looked at")
    # Behind jobs of one name that were cut off, the position would pass over some.
    following = position if len(found) <= limit else None
    records = [_job_to_fields(job) for job in found[:limit]]
    empty = f"no job is {state}" if name is None else f"no job named {printable(name)!r} is {state}"
    if not found:
        empty = await explain_empty_queue(context, queue_name, empty)
    context.output.print_table_or_json("jobs", COLUMNS[state], records, empty=empty, next=following)


def _job_to_fields(job: JobView) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "attempt": job.attempt + 1,
        **make_iso_and_ms_fields(created_at=job.created_at_ms or None),
        "data": job.data,
        "entry_id": job.entry_id,
        "error": job.error,
    }
    if job.state == "delayed":
        record |= make_iso_and_ms_fields(due_at=job.due_ms)
    if job.state == "active":
        record |= {"worker": job.worker, "idle_ms": job.idle_ms, "deliveries": job.deliveries}
    if job.state == "dead":
        record |= {"reason": job.reason}
    if job.id is None and job.state != "dead":
        record["data"] = f"cannot be decoded: {job.error}"
    return record
