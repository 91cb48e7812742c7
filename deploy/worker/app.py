"""A worker as an application has one: what it does stands here, where and how it runs stands in the environment."""

from __future__ import annotations

import logging

from pychasqui import Job, Worker, logs

handler = logging.StreamHandler()
handler.addFilter(logs.JobFilter())  # each line names its job
handler.setFormatter(logs.JsonFormatter())
logging.basicConfig(handlers=[handler], level=logging.INFO)
log = logging.getLogger("shop")


async def handle(job: Job) -> None:
    log.info("%s to %s", job.name, job.data)


worker = Worker("mail", handle)
