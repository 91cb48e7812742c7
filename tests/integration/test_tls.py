"""S7: TLS that verifies the certificate and the name, over every connection, and never falls back."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

from pychasqui import ConnectionLost, InvalidArgument, Job, NotRedis, Queue, RedisTrouble, Worker
from pychasqui._redis import connection
from tests.support.server import RedisServer
from tests.support.tls_front import AUTHORITY, TlsFront
from tests.support.waiting import eventually

LOCKED_KEY = AUTHORITY.with_name("locked.pem")
TRUST = f"ssl_ca_certs={AUTHORITY}"


@pytest.fixture
async def front(server: RedisServer, redis_url: str) -> AsyncIterator[TlsFront]:
    async with TlsFront(server.socket_path) as front:
        yield front


async def refused(url: str, *, tls: bool = False) -> str:
    """What an add over this URL is refused with."""
    start = monotonic()
    async with Queue("emails", redis_url=url, tls=tls, timeout_s=1.5) as queue:
        with pytest.raises(RedisTrouble) as refusal:
            await queue.add("send")
    assert monotonic() - start < 15
    return str(refusal.value)


@pytest.mark.parametrize("host", ("localhost", "127.0.0.1"))
@pytest.mark.parametrize("option", ("", "&protocol=3", "&db=1"))
async def test_jobs_are_added_and_run_over_it(front: TlsFront, queue_name: str, host: str, option: str) -> None:
    url = f"rediss://{host}:{front.port}?{TRUST}{option}"
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with Queue(queue_name, redis_url=url) as queue, Worker(queue_name, done.put, redis_url=url):
        await queue.add_bulk({"name": "send", "data": number} for number in range(1000))
        assert sorted([(await done.get()).data for _ in range(1000)]) == list(range(1000))
    assert front.accepted == 4  # the queue's and the worker's three, none of them in plain text


async def test_the_argument_does_the_same_as_the_scheme(front: TlsFront, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    url = f"redis://localhost:{front.port}?{TRUST}"
    async with (
        Queue(queue_name, redis_url=url, tls=True) as queue,
        Worker(queue_name, done.put, redis_url=url, tls=True),
    ):
        await queue.add("send", 1)
        assert (await done.get()).data == 1


async def test_a_certificate_of_an_unknown_authority_is_refused(front: TlsFront) -> None:
    assert "certificate verify failed" in await refused(f"rediss://localhost:{front.port}")


async def test_a_certificate_for_another_name_is_refused(server: RedisServer, redis_url: str) -> None:
    async with TlsFront(server.socket_path, "elsewhere") as front:
        error = await refused(f"rediss://localhost:{front.port}?{TRUST}")
    assert "certificate is not valid for 'localhost'" in error
    assert "ssl_server_hostname" in error


@pytest.mark.parametrize("certificate", ("elsewhere", "here"))
async def test_the_name_to_check_may_be_another_than_the_host(
    server: RedisServer, redis_url: str, certificate: str
) -> None:
    """A tunnel leads from this machine to a server that has another name. The certificate of a third is refused."""
    async with TlsFront(server.socket_path, certificate) as front:
        url = f"rediss://127.0.0.1:{front.port}?{TRUST}&ssl_server_hostname=redis.example.org"
        if certificate == "here":
            assert "not valid for 'redis.example.org'" in await refused(url)
        else:
            async with Queue("emails", redis_url=url) as queue:
                await queue.counts()
        assert front.names[0] == "redis.example.org"


@pytest.mark.parametrize("name", (".example.org", "a%20b", "host%2Fname"))
async def test_a_name_to_check_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="ssl_server_hostname, which must be a host name"):
        Queue("emails", redis_url=f"rediss://127.0.0.1?ssl_server_hostname={name}")


async def test_a_worker_is_refused_as_well(front: TlsFront, queue_name: str) -> None:
    """It keeps trying, as it does for a server that is away: a certificate may be put right."""

    async def handle(job: Job) -> None:
        pass

    worker = Worker(queue_name, handle, redis_url=f"rediss://localhost:{front.port}")
    running = asyncio.create_task(worker.run())
    await asyncio.wait({running}, timeout=0.3)
    assert front.accepted == 0
    await worker.close()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_systems_authorities_are_trusted_unless_the_url_names_others(
    front: TlsFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    async with Queue("emails", redis_url=f"rediss://localhost:{front.port}") as queue:
        await queue.counts()
    url = f"rediss://localhost:{front.port}?ssl_ca_certs={AUTHORITY.with_name('elsewhere.pem')}"
    assert "certificate verify failed" in await refused(url)


@pytest.mark.parametrize("option", ("ssl_cert_reqs=none", f"ssl_check_hostname=false&{TRUST}"))
async def test_a_check_that_is_switched_off_is_warned_about(
    front: TlsFront, queue_name: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For every name, and on every version of every library."""
    async with Queue(queue_name, redis_url=f"rediss://localhost:{front.port}?{option}") as queue:
        await queue.counts()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert option.partition("&")[0] in warning.getMessage()
    assert "ssl_ca_certs" in warning.getMessage()


async def test_a_check_of_the_certificate_goes_without_one_of_the_name_where_the_url_says_so(
    server: RedisServer, redis_url: str
) -> None:
    async with (
        TlsFront(server.socket_path, "elsewhere") as front,
        Queue("emails", redis_url=f"rediss://localhost:{front.port}?{TRUST}&ssl_check_hostname=false") as queue,
    ):
        await queue.counts()
    assert front.accepted == 1


@pytest.mark.parametrize("password", ("", "&ssl_password=wrong"))
async def test_a_locked_key_without_its_password_is_refused_without_a_prompt(password: str) -> None:
    """OpenSSL would ask on the terminal, and a service would hang there."""
    with pytest.raises(InvalidArgument, match="ssl_password") as refusal:
        Queue("emails", redis_url=f"rediss://localhost?ssl_certfile={LOCKED_KEY}{password}")
    assert "wrong" not in str(refusal.value)


async def test_a_locked_key_with_its_password_is_used(front: TlsFront) -> None:
    url = f"rediss://localhost:{front.port}?{TRUST}&ssl_certfile={LOCKED_KEY}&ssl_password=opensesame"
    async with Queue("emails", redis_url=url) as queue:
        await queue.counts()
    assert front.accepted == 1


async def test_verification_ends_only_where_the_url_says_so(front: TlsFront, queue_name: str, server: Any) -> None:
    async with Queue(queue_name, redis_url=f"rediss://localhost:{front.port}?ssl_cert_reqs=none") as queue:
        await queue.add("send")
    assert front.accepted == 1
    assert server.execute("XLEN", f"{{chasqui:{queue_name}}}:stream") == 1
    server.execute("DEL", f"{{chasqui:{queue_name}}}:stream")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_an_outdated_version_is_refused(server: RedisServer, redis_url: str) -> None:
    async with TlsFront(server.socket_path, newest=ssl.TLSVersion.TLSv1_1) as front:
        assert await refused(f"rediss://localhost:{front.port}?{TRUST}")
        assert front.accepted == 0


async def test_plain_text_to_a_server_that_wants_tls_is_refused(front: TlsFront) -> None:
    assert await refused(f"redis://localhost:{front.port}")


async def test_tls_to_a_server_without_it_never_falls_back(server: RedisServer, redis_url: str) -> None:
    with pytest.raises(ConnectionLost):
        async with Queue("emails", redis_url=f"rediss://127.0.0.1:{server.port}", timeout_s=0.3) as queue:
            await queue.add("send")
    assert server.execute("DBSIZE") == 0


async def test_tls_to_a_plain_server_is_refused_within_five_seconds(server: RedisServer, redis_url: str) -> None:
    """By the time that an add has by default it would have been tried for longer."""
    start = monotonic()
    async with Queue("emails", redis_url=f"rediss://127.0.0.1:{server.port}") as queue:
        with pytest.raises(NotRedis, match="is a plain port"):
            await queue.add("send")
    assert monotonic() - start < 5


async def test_tls_settings_without_tls_are_a_contradiction() -> None:
    """A user who names an authority wants TLS; plain text would be a surprise."""
    with pytest.raises(InvalidArgument, match=r"ssl_ca_certs.*rediss"):
        Queue("emails", redis_url=f"redis://localhost?{TRUST}")


async def test_a_cut_connection_is_opened_again(front: TlsFront, queue_name: str) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    url = f"rediss://localhost:{front.port}?{TRUST}"
    async with Queue(queue_name, redis_url=url) as queue, Worker(queue_name, done.put, redis_url=url):
        for number in range(3):
            await queue.add("send", number)
            assert (await done.get()).data == number
            for writer in front._writers:
                writer.transport.abort()
            front._writers.clear()
        await eventually(lambda: front.accepted > 4)


async def test_each_error_of_a_plain_url_to_a_tls_port_names_rediss(front: TlsFront) -> None:
    url = f"redis://localhost:{front.port}"
    async with Queue("emails", redis_url=url) as first, Queue("emails", redis_url=url) as second:
        for queue in (first, second, first, second):
            with pytest.raises(NotRedis, match=r"is a TLS port.*use rediss://"):
                await queue.add("send")


async def test_the_error_of_a_tls_url_to_a_plain_port_names_redis(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection, "CONNECT_TIMEOUT_S", 0.5
    )  # a server may wait for the end of what it takes for a line
    async with Queue("emails", redis_url=f"rediss://127.0.0.1:{server.port}") as queue:
        with pytest.raises(NotRedis, match=r"is a plain port.*use redis://"):
            await queue.add("send")
