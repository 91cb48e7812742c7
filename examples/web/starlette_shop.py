"""A Starlette app whose jobs run in workers: `chasqui worker starlette_shop:jobs` and `uvicorn starlette_shop:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pychasqui import App

jobs = App(os.environ.get("CHASQUI_REDIS_URL", "embedded://"))
outbox = Path(os.environ.get("OUTBOX", "outbox.txt"))


@jobs.task(queue="mail", attempts=5)
def send_welcome(email: str) -> str:
    with outbox.open("a") as file:
        file.write(f"{email}\n")
    return f"welcome {email}"


async def sign_up(request: Request) -> JSONResponse:
    handle = await send_welcome.enqueue((await request.json())["email"])
    return JSONResponse({"job": handle.id}, status_code=202)


async def show_job(request: Request) -> JSONResponse:
    status = await jobs.queue("mail").status(request.path_params["job_id"])
    return JSONResponse({"state": status.state, "result": status.result})


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with jobs:
        yield


app = Starlette(
    routes=[Route("/customers", sign_up, methods=["POST"]), Route("/jobs/{job_id}", show_job)], lifespan=lifespan
)
