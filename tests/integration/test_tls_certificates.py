"""TLS of a real server: private authorities, certificates of clients, and an error with a remedy for each wrong one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from pychasqui import ConnectionLost, Job, Queue, QueueEvents, Worker
from tests.support.server import PORT_TRIES, RedisServer, unused_port
from tests.support.tls_front import AUTHORITY, FOLDER, TlsFront
from tests.support.waiting import eventually

TRUST = f"ssl_ca_certs={AUTHORITY}"
CLIENT = f"ssl_certfile={FOLDER / 'client.pem'}&ssl_keyfile={FOLDER / 'client.pem'}"


class TlsServer(RedisServer):
    """A server that asks every client on its TLS port for a certificate."""

    def __init__(self, *config: str) -> None:
        self.tls_port = unused_port()
        here = str(FOLDER / "here.pem")
        files = ("--tls-cert-file", here, "--tls-key-file", here, "--tls-ca-cert-file", str(AUTHORITY))
        super().__init__("--tls-port", str(self.tls_port), *files, *config)

    def tls_url(self, *options: str, host: str = "localhost") -> str:
        return f"rediss://{host}:{self.tls_port}?{'&'.join(options)}"

    def show(self, certificate: str) -> None:
        """Uses another certificate from now on."""
        path = str(FOLDER / f"{certificate}.pem")
        self.execute("CONFIG", "SET", "tls-cert-file", path, "tls-key-file", path)


def start_tls_server(protocol: str) -> TlsServer:
    """Starts one; another process may take the port between the look and the start."""
    for _ in range(PORT_TRIES):
        server = TlsServer("--tls-protocols", protocol)
        try:
            server.start()
        except RuntimeError as error:
            server.close()
            if "Bad directive" in str(error):
                pytest.skip("this server was built without TLS")
            if "Address already in use" not in str(error):
                raise
        else:
            return server
    raise RuntimeError(f"{PORT_TRIES} free ports in a row were taken by others")


@pytest.fixture(scope="module", params=("TLSv1.2", "TLSv1.3"))
def tls_server(request: pytest.FixtureRequest) -> Iterator[TlsServer]:
    with start_tls_server(request.param) as server:
        yield server


async def refuses(url: str, remedy: str) -> bool:
    """Whether an add over this URL is refused with that remedy, once the server has answered.

    A reset can overtake the server's alert.
    """
    text = "no answer"
    async with Queue("emails", redis_url=url, timeout_s=0.15) as queue:
        while "no answer" in text or "reset by peer" in text:
            with pytest.raises(ConnectionLost) as refused:
                await queue.add("send")
            text = str(refused.value)
    return re.search(remedy, text) is not None


async def test_every_connection_shows_the_certificate_of_the_client(tls_server: TlsServer) -> None:
    url = tls_server.tls_url(TRUST, CLIENT)
    done: asyncio.Queue[Job] = asyncio.Queue()
    async with (
        Queue("orders", redis_url=url) as queue,
        QueueEvents("orders", redis_url=url, block_ms=50),
        Worker("orders", done.put, redis_url=url, store_results=True),
    ):
        job = await queue.add("send", 1, delay_ms=1)
        assert (await done.get()).data == 1
        assert await queue.wait_for_result(job.id, timeout=20) is None


@pytest.mark.parametrize(
    ("options", "remedy"),
    (
        ("", r"asks for a certificate of the client.*ssl_certfile and ssl_keyfile"),
        ("unknown-client", "does not trust the authority that has signed the client's certificate"),
        ("expired-client", "the client's certificate has expired; renew"),
        ("here", "extended key usage clientAuth"),
    ),
    ids=("missing", "of an unknown authority", "expired", "of a server"),
)
async def test_the_error_about_a_clients_certificate_names_the_remedy(
    tls_server: TlsServer, options: str, remedy: str
) -> None:
    own = f"ssl_certfile={FOLDER / options}.pem" if options else ""
    assert await refuses(tls_server.tls_url(TRUST, *filter(None, (own,))), remedy)


@pytest.mark.parametrize(
    ("certificate", "remedy"),
    (
        ("elsewhere", "is for another host; connect by a name that it has"),
        ("expired", "renew the server's certificate"),
        ("early", "set the clock of this machine"),
    ),
)
async def test_the_error_about_a_servers_certificate_names_the_remedy(
    tls_server: TlsServer, certificate: str, remedy: str
) -> None:
    tls_server.show(certificate)
    try:
        assert await refuses(tls_server.tls_url(TRUST, CLIENT), remedy)
    finally:
        tls_server.show("here")


@pytest.mark.parametrize("trusted", ("", f"ssl_ca_certs={FOLDER / 'other-ca.pem'}"), ids=("the system's", "another"))
async def test_the_error_about_an_unknown_authority_names_the_remedy(tls_server: TlsServer, trusted: str) -> None:
    url = tls_server.tls_url(CLIENT, *filter(None, (trusted,)))
    assert await refuses(url, "ssl_ca_certs in redis_url names the file of the authority")


async def test_a_worker_runs_jobs_once_the_certificate_is_put_right(tls_server: TlsServer) -> None:
    done: asyncio.Queue[Job] = asyncio.Queue()
    url = tls_server.tls_url(TRUST, CLIENT)
    tls_server.show("expired")
    worker = Worker("mended", done.put, redis_url=url)
    running = asyncio.create_task(worker.run())
    try:
        await asyncio.wait({running}, timeout=0.1)
        tls_server.show("here")
        async with Queue("mended", redis_url=url) as queue:
            await queue.add("send", 1)
            assert (await done.get()).data == 1
    finally:
        tls_server.show("here")
        await worker.close()
        await running


async def test_the_host_of_the_url_is_the_name_that_the_server_is_asked_for(
    server: RedisServer, redis_url: str
) -> None:
    """A proxy of many servers chooses by it. An address is no name, and is not sent (RFC 6066)."""
    async with TlsFront(server.socket_path) as front:
        for host in ("localhost", "127.0.0.1"):
            async with Queue("emails", redis_url=f"rediss://{host}:{front.port}?{TRUST}") as queue:
                await queue.counts()
        await eventually(lambda: len(front.names) == 2)
        assert front.names == ["localhost", None]
