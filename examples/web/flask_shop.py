"""A Flask app whose jobs run in workers.

chasqui worker flask_shop:jobs         # in a second terminal
flask --app flask_shop run
curl -d email=ada@example.org localhost:5000/customers
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from flask import Flask, current_app, request

from pychasqui import App

P = ParamSpec("P")
R = TypeVar("R")

jobs = App(os.environ.get("CHASQUI_REDIS_URL", "embedded://"))
app = Flask(__name__)
app.config["OUTBOX"] = Path(os.environ.get("OUTBOX", "outbox.txt"))


def in_app(function: Callable[P, R]) -> Callable[P, R]:
    """Runs a task in the context of the Flask app: `current_app`, the extensions, and what ends with the context."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with app.app_context():
            return function(*args, **kwargs)

    return run


@jobs.task(queue="mail", attempts=5)
@in_app
def send_welcome(email: str) -> str:
    with current_app.config["OUTBOX"].open("a") as file:
        file.write(f"{email}\n")
    return f"welcome {email}"


@app.post("/customers")
def sign_up() -> tuple[dict[str, str], int]:
    handle = send_welcome.sync.enqueue(request.form["email"])
    return {"job": handle.id}, 202


@app.get("/jobs/<job_id>")
def show_job(job_id: str) -> dict[str, object]:
    status = jobs.sync.queue("mail").status(job_id)
    return {"state": status.state, "result": status.result}
