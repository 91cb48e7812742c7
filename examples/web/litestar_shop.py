"""A Litestar app whose jobs run in workers.

chasqui worker litestar_shop:jobs      # in a second terminal
litestar --app litestar_shop:app run
"""

import os
from dataclasses import dataclass
from pathlib import Path

from litestar import Litestar, get, post

from pychasqui import App

jobs = App(os.environ.get("CHASQUI_REDIS_URL", "embedded://"))
outbox = Path(os.environ.get("OUTBOX", "outbox.txt"))


@dataclass
class Customer:
    email: str
    name: str = "you"


@jobs.task(queue="mail", attempts=5)
def send_welcome(customer: Customer) -> str:
    with outbox.open("a") as file:
        file.write(f"{customer.email}\n")
    return f"welcome {customer.name}"


@post("/customers", status_code=202)
async def sign_up(data: Customer) -> dict[str, str]:
    handle = await send_welcome.enqueue(data)
    return {"job": handle.id}


@get("/jobs/{job_id:str}")
async def show_job(job_id: str) -> dict[str, object]:
    status = await jobs.queue("mail").status(job_id)
    return {"state": status.state, "result": status.result}


app = Litestar([sign_up, show_job], lifespan=[jobs])
