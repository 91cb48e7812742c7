"""The examples for web frameworks: requests enqueue jobs, a worker process runs them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "web"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _surroundings(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHASQUI_REDIS_URL", redis_url)
    monkeypatch.setenv("OUTBOX", str(tmp_path / "outbox.txt"))
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts a program that runs workers; its log is in the test's folder."""
    workers: list[subprocess.Popen[bytes]] = []

    def start(*words: str, folder: Path = EXAMPLES) -> None:
        with (tmp_path / "worker.log").open("wb") as log:
            workers.append(subprocess.Popen([sys.executable, *words], cwd=folder, stderr=log))

    yield start
    for worker in workers:
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0, (tmp_path / "worker.log").read_text()


@pytest.fixture
def start_worker(start_program: Callable[..., None]) -> Callable[[str], None]:
    """Starts the worker of an example."""
    return lambda module: start_program("-m", "pychasqui.cli", "worker", f"{module}:jobs")


def load(module: str) -> Any:
    sys.modules.pop(module, None)
    return importlib.import_module(module)


def client_of(kind: str, app: Any) -> AbstractContextManager[Any]:
    """A client of the app, which is started while inside."""
    if kind == "litestar":
        from litestar.testing import TestClient as LitestarClient

        return LitestarClient(app)
    from starlette.testclient import TestClient as StarletteClient

    return StarletteClient(app)


def wait_until_done(show: Callable[[str], Any], job_id: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while (shown := show(job_id))["state"] != "done":
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
    return shown["result"]


@pytest.mark.filterwarnings("ignore")  # of the frameworks
@pytest.mark.parametrize(
    ("kind", "paths", "expected"),
    (
        ("fastapi", ("/customers", "/customers/from-a-thread"), "welcome you"),
        ("starlette", ("/customers",), "welcome ada@example.org"),
        ("litestar", ("/customers",), "welcome you"),
    ),
)
def test_requests_of_an_asgi_app_enqueue_jobs(
    kind: str, paths: tuple[str, ...], expected: str, start_worker: Callable[[str], None], tmp_path: Path
) -> None:
    pytest.importorskip(kind)
    module = load(f"{kind}_shop")
    start_worker(module.__name__)
    with client_of(kind, module.app) as client:
        for path in paths:
            answer = client.post(path, json={"email": "ada@example.org"})
            assert answer.status_code == 202, answer.text
            result = wait_until_done(lambda job_id: client.get(f"/jobs/{job_id}").json(), answer.json()["job"])
            assert result == expected
    assert (tmp_path / "outbox.txt").read_text() == "ada@example.org\n" * len(paths)
    if kind == "fastapi":
        module.jobs.sync.close()


DJANGO = """
import time, django
django.setup()
from django.core.management import call_command
from django.test import Client
from shop.models import Customer
call_command("migrate", run_syncdb=True, verbosity=0)
client = Client()
answer = client.post("/customers/", {"email": "ada@example.org"})
assert answer.status_code == 202, answer.content
deadline = time.monotonic() + 50
while (shown := client.get(f"/tasks/{answer.json()['task']}/").json())["status"] != "SUCCESSFUL":
    assert time.monotonic() < deadline, shown
    time.sleep(0.02)
print(shown["value"], Customer.objects.get().welcomed)
"""


def test_requests_of_a_django_site_enqueue_tasks(
    start_program: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("django_tasks")
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    site = EXAMPLES.parent / "django_site"
    start_program("manage.py", "chasqui_worker", folder=site)
    client = subprocess.run([sys.executable, "-c", DJANGO], cwd=site, capture_output=True, text=True, timeout=100)
    assert client.stdout == "welcome ada@example.org 1\n", client.stderr


def test_requests_of_a_flask_app_enqueue_jobs(start_worker: Callable[[str], None], tmp_path: Path) -> None:
    pytest.importorskip("flask")
    module = load("flask_shop")
    start_worker(module.__name__)
    client = module.app.test_client()
    answer = client.post("/customers", data={"email": "ada@example.org"})
    assert answer.status_code == 202
    result = wait_until_done(lambda job_id: client.get(f"/jobs/{job_id}").json, answer.json["job"])
    assert result == "welcome ada@example.org"
    assert (tmp_path / "outbox.txt").read_text() == "ada@example.org\n"
    module.jobs.sync.close()
