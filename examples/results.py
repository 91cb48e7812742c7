"""Waits for results, and reads the progress, log and failure of jobs. Run it: python examples/results.py"""

from __future__ import annotations

import asyncio
import os

from pychasqui import Job, JobFailed, Queue, UnrecoverableError, Worker

URL = os.environ.get("CHASQUI_URL", "embedded://")


async def count_words(job: Job) -> int:
    pages = job.data["pages"]
    if not pages:
        raise UnrecoverableError("there is nothing to count")
    words = 0
    for number, page in enumerate(pages, 1):
        words += len(page.split())
        job.progress(number, len(pages), f"page {number}")
        job.log(f"page {number}: {words} words so far")
    return words


async def main() -> None:
    async with (
        Queue("words", redis_url=URL) as queue,
        Worker("words", count_words, redis_url=URL, store_results=True, result_ttl_ms=60_000),
    ):
        book = await queue.add("count", {"pages": ["it was the best of times", "it was the worst of times"]})
        print("words:", await book.wait_for_result(timeout=10))
        print("progress:", await queue.get_job_progress(book.id), "%")
        print("log:", (await queue.get_job_logs(book.id))[-1])

        many = await queue.add_bulk({"name": "count", "data": {"pages": ["word " * n]}} for n in (1, 2, 3))
        print("of many:", await queue.wait_for_results([job.id for job in many]))

        empty = await queue.add("count", {"pages": []})
        try:
            await empty.wait_for_result()
        except JobFailed as failure:
            print("failed:", failure.error_type, failure.error, "after", failure.attempts, "run")
        await queue.purge("dead")


asyncio.run(main())
