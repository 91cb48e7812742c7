"""A FastAPI app whose jobs run in workers.

chasqui worker fastapi_shop:jobs       # in a second terminal
uvicorn fastapi_shop:app
curl -H 'content-type: application/json' -d '{"email": "ada@example.org"}' localhost:8000/customers
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pychasqui import App

jobs = App(os.environ.get("CHASQUI_REDIS_URL", "embedded://"))
outbox = Path(os.environ.get("OUTBOX", "outbox.txt"))


class Customer(BaseModel):
    email: str
    name: str = "you"


@jobs.task(queue="mail", attempts=5)
def send_welcome(customer: Customer) -> str:  # a plain function runs in a thread of the worker
    with outbox.open("a") as file:
        file.write(f"{customer.email}\n")
    return f"welcome {customer.name}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with jobs:  # closes the connections at the end
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/customers", status_code=202)
async def sign_up(customer: Customer) -> dict[str, str]:
    handle = await send_welcome.enqueue(customer)
    return {"job": handle.id}


@app.post("/customers/from-a-thread", status_code=202)
def sign_up_in_a_thread(customer: Customer) -> dict[str, str]:  # FastAPI runs a plain function in a thread
    return {"job": send_welcome.sync.enqueue(customer).id}


@app.get("/jobs/{job_id}")
async def show_job(job_id: str) -> dict[str, object]:
    status = await jobs.queue("mail").status(job_id)
    if status.state == "unknown":
        raise HTTPException(404, status.note)
    return {"state": status.state, "result": status.result}
