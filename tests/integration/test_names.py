"""S10: any name of a queue and any id is taken or refused, and neither ever reaches another queue's keys."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import quote

import pytest
import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pychasqui import InvalidArgument, Job, PrometheusSink, Queue, QueueEvents, QueueExporter, RepeatPattern, Worker
from pychasqui._redis.keys import REGISTRY
from tests.support.server import RedisServer

ODD_NAMES = (
    "emails/eu",
    "order mails",
    "Bestellungen für Ö 🦙",
    "a{b",
    "{",
    "*",
    "50%*?[x]\\",
    'say "hello"',
    "' or 1=1 --",
    "../../etc",
    "$(id)",
    "ü" * 256,
)
ROUND = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(params=ODD_NAMES)
def queue_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_queue_of_an_odd_name_does_everything(
    queue: Queue, redis_url: str, witness: redis.asyncio.Redis, no_keys_left: None
) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    other = await witness.set(f"{{chasqui:{queue.name}x}}:stream", "another queue's")
    assert other
    sink = PrometheusSink(queue.name)
    async with (
        QueueEvents(queue.name, redis_url=redis_url, last_event_id="0") as events,
        Worker(queue.name, done.put, redis_url=redis_url, metrics=sink, store_results=True),
        QueueExporter([queue], metrics_port=0) as exporter,
    ):
        await queue.add("later", 1, delay_ms=50, job_id="an id/with {odd} letters")
        await queue.repeatables.upsert("again", 2, repeat=RepeatPattern.every(50), limit=1)
        assert {(await done.get()).data for _ in range(2)} == {1, 2}
        assert (await anext(events)).job_id is not None
        await queue.pause()
        await queue.resume()
        assert len(await queue.workers()) == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", exporter.metrics_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        escaped = queue.name.replace("\\", "\\\\").replace('"', '\\"')
        assert f'chasquimq_queue_up{{queue="{escaped}"}} 1' in page
        names = {client["name"] for client in await witness.client_list()}
        assert quote(f"chasqui-worker-{queue.name}", safe="!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") in names
    await queue.obliterate()
    assert await witness.keys("{*") == [f"{{chasqui:{queue.name}x}}:stream".encode()]
    await witness.flushall()


def glob(text: str) -> str:
    """As a pattern of an access rule, which takes no spaces."""
    text = text.replace(" ", "\0")
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text).replace("\0", "?")


class TestKeys:
    @pytest.fixture
    def queue_name(self) -> str:
        return "unused"

    @ROUND
    @given(name=st.text(min_size=1, max_size=40), job_id=st.text(max_size=40))
    def test_no_name_and_no_id_touches_the_keys_of_another_queue(
        self, server: RedisServer, name: str, job_id: str
    ) -> None:
        """The server itself keeps the user to the queue's own keys, and its log says whether it had to."""
        try:
            Queue(name, redis_url=server.url)
        except InvalidArgument:
            return
        server.execute("FLUSHALL")
        server.execute("ACL", "LOG", "RESET")
        rules = ("on", ">secret", "resetkeys", "resetchannels", "+@all")
        server.execute(
            "ACL",
            "SETUSER",
            "guarded",
            *rules,
            f"~{glob(f'{{chasqui:{name}}}')}:*",
            f"&{glob(f'{{chasqui:{name}}}')}:*",
        )
        try:
            asyncio.run(use_everything(f"unix://guarded:secret@{server.socket_path}", name, job_id))
            refusals = server.execute("ACL", "LOG")  # on Redis 6.2 the registry is tried, and refused
            assert [refusal for refusal in refusals if refusal[b"object"] != REGISTRY.encode()] == []
            prefix = f"{{chasqui:{name}}}:".encode()
            assert [key for key in server.execute("KEYS", "*") if not key.startswith(prefix)] == []
        finally:
            server.execute("ACL", "DELUSER", "guarded")
            server.execute("FLUSHALL")


async def use_everything(url: str, name: str, job_id: str) -> None:
    async def handle(job: Job) -> str:
        job.progress(1)
        job.log("a line")
        return "result"

    async with Queue(name, redis_url=url) as queue:
        for options in ({}, {"delay_ms": 1}, {"delay_ms": 60_000, "if_exists": "replace"}):
            with contextlib.suppress(InvalidArgument):
                await queue.add("send", 1, job_id=job_id, **options)
        with contextlib.suppress(InvalidArgument):
            await queue.repeatables.upsert("again", 2, repeat=RepeatPattern.every(1000), key=job_id)
        async with Worker(name, handle, redis_url=url, store_results=True):
            last = await queue.add("last")
            assert await last.wait_for_result(timeout=40) == "result"
        with contextlib.suppress(InvalidArgument):
            await queue.run_now(job_id)
            await queue.cancel_delayed(job_id)
            await queue.get_job(job_id)
            await queue.get_job_result(job_id)
            await queue.get_job_logs(job_id)
