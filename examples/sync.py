"""A web application without an event loop, as in Flask or Django, that sends tasks; and the worker that runs them."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from wsgiref.simple_server import make_server
from wsgiref.util import setup_testing_defaults

from pychasqui import App

app = App(os.environ.get("CHASQUI_URL", "embedded://"))


@app.task(queue="sign-ups")
def send_welcome(name: str) -> str:
    return f"welcome {name}"


def web(environ: dict[str, object], start_response: Callable[..., object]) -> Iterable[bytes]:
    """The application: it answers as soon as Redis has the job."""
    handle = send_welcome.sync.enqueue(str(environ["QUERY_STRING"]))
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [handle.id.encode()]


def visit(name: str) -> str:
    """What a web server does for each request, in a thread of its own."""
    environ: dict[str, object] = {"QUERY_STRING": name}
    setup_testing_defaults(environ)
    return b"".join(web(environ, lambda status, headers: None)).decode()


async def work(stop: threading.Event) -> None:
    async with app, app.worker():
        await asyncio.to_thread(stop.wait)


def main() -> None:
    assert make_server  # with it, `make_server("", 8000, web).serve_forever()` serves the application
    stop = threading.Event()
    worker = threading.Thread(target=asyncio.run, args=(work(stop),))
    worker.start()  # in production a process of its own: chasqui worker sync:app
    for name in ("ada", "bo"):
        job_id = visit(name)
        print(send_welcome.sync.handle(job_id).result(timeout=10))
    stop.set()
    worker.join()


if __name__ == "__main__":
    main()
