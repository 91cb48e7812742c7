"""The smallest program of each library that adds one job: `python -c PROGRAM URL LOOP`, by the module of the peer.

Written as each project's documentation does. Where a library runs on asyncio, so does its program; LOOP says uvloop for
the peers that are measured on both.
"""

from __future__ import annotations

DATA = '{"to": "ada@example.org", "template": "welcome", "locale": "en", "n": 7}'

_QUEUE = """
import asyncio, sys
from {library} import Queue

async def main():
    async with Queue("bench", redis_url=sys.argv[1]) as queue:
        await queue.add("bench", {data})

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""

_ARQ = """
import asyncio, sys
from arq import create_pool
from arq.connections import RedisSettings

async def main():
    pool = await create_pool(RedisSettings.from_dsn(sys.argv[1]))
    await pool.enqueue_job("bench", {data})
    await pool.aclose()

asyncio.run(main())
"""

_SAQ = """
import asyncio, sys
from saq import Queue

async def main():
    queue = Queue.from_url(sys.argv[1], name="bench")
    await queue.enqueue("bench", data={data})
    await queue.disconnect()

asyncio.run(main())
"""

_STREAQ = """
import asyncio, sys
from streaq import Worker

worker = Worker(sys.argv[1], queue_name="bench")

@worker.task(name="bench")
async def bench(data): ...

async def main():
    async with worker:
        await bench.enqueue({data})

asyncio.run(main())
"""

_TASKIQ = """
import asyncio, sys
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(sys.argv[1], queue_name="bench", consumer_id="0")

@broker.task(task_name="bench")
async def bench(data): ...

async def main():
    await broker.startup()
    await bench.kiq({data})
    await broker.shutdown()

asyncio.run(main())
"""

_BULLMQ = """
import asyncio, sys
from bullmq import Queue

async def main():
    queue = Queue("bench", {{"connection": sys.argv[1]}})
    await queue.add("bench", {data})
    await queue.close()

asyncio.run(main())
"""

_DRAMATIQ = """
import sys
import dramatiq
from dramatiq.brokers.redis import RedisBroker

@dramatiq.actor(actor_name="bench", queue_name="bench", broker=RedisBroker(url=sys.argv[1]))
def bench(data): ...

bench.send({data})
"""

_CELERY = """
import sys
from celery import Celery

app = Celery("bench", broker=sys.argv[1])

@app.task(name="bench")
def bench(data): ...

bench.delay({data})
"""

_RQ = """
import sys
from redis import Redis
from rq import Queue

Queue("bench", connection=Redis.from_url(sys.argv[1])).enqueue("benchmarks.peers.rq.handle", {data})
"""

_HUEY = """
import sys
from huey import RedisHuey

huey = RedisHuey("bench", url=sys.argv[1])

@huey.task()
def bench(data): ...

bench({data})
"""

_NODE = """
const {{ Queue }} = require("bullmq");
const place = new URL(process.argv[1]);
const queue = new Queue("bench", {{ connection: {{ host: place.hostname, port: Number(place.port) }} }});
queue.add("bench", {data}).then(() => queue.close());
"""

PROGRAMS = {
    "pychasqui": _QUEUE.format(library="pychasqui", data=DATA),
    "chasquimq": _QUEUE.format(library="chasquimq", data=DATA),
    "arq": _ARQ.format(data=DATA),
    "saq": _SAQ.format(data=DATA),
    "streaq": _STREAQ.format(data=DATA),
    "taskiq": _TASKIQ.format(data=DATA),
    "bullmq": _BULLMQ.format(data=DATA),
    "dramatiq": _DRAMATIQ.format(data=DATA),
    "celery": _CELERY.format(data=DATA),
    "rq": _RQ.format(data=DATA),
    "huey": _HUEY.format(data=DATA),
    "bullmq_node.cjs": _NODE.format(data=DATA),
}
