"""The package and its tasks work where neither pydantic nor Django can be imported."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class Refusing:
    refused = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "pydantic_core", "django", "django_tasks"):
            self.refused.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

import pychasqui
for name in pychasqui.__all__:
    getattr(pychasqui, name)
assert not Refusing.refused, Refusing.refused

@dataclass
class Order:
    id: UUID
    day: date

app = pychasqui.App(sys.argv[1])

@app.task(queue=sys.argv[2])
async def charge(order: Order, times: int = 2) -> date:
    return order.day + timedelta(days=times)

async def main():
    order = Order(UUID(int=7), date(2026, 1, 30))
    async with app, app.worker():
        print(await (await charge.enqueue(order)).result(timeout=20))
        try:
            await charge.enqueue(order, times="many")
        except pychasqui.InvalidArgument as error:
            print(error)
    await app.close()

asyncio.run(main())
try:
    import pydantic
except ModuleNotFoundError:
    print("pydantic cannot be imported")
"""


def test_a_task_without_models_runs_where_pydantic_and_django_are_not_installed(
    redis_url: str, queue_name: str
) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, redis_url, queue_name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "2026-02-01",
        "charge: times: Expected `int`, got `str`",
        "pydantic cannot be imported",
    ]
