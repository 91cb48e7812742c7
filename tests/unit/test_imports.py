"""`import pychasqui` loads a name's module when the name is used, and every list of names is the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pychasqui
from tests.support.cases import in_one_test


def loaded_by(code: str) -> set[str]:
    """The modules that a new process has loaded after the code."""
    program = f"{code}\nimport sys\nsys.stderr.write(' '.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


def names_for_type_checkers() -> set[str]:
    assert pychasqui.__file__ is not None
    tree = ast.parse(Path(pychasqui.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_the_lists_of_public_names_are_the_same() -> None:
    assert names_for_type_checkers() | {"__version__"} == set(pychasqui.__all__)
    assert set(pychasqui._MODULE_OF) | {"__version__"} == set(pychasqui.__all__)
    assert len(pychasqui.__all__) == len(set(pychasqui.__all__))


@in_one_test("name", pychasqui.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pychasqui, name) is not None
    assert name in dir(pychasqui)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pychasqui' has no attribute 'Queu'"):
        pychasqui.Queu  # type: ignore[attr-defined]  # noqa: B018


def test_an_import_of_the_package_loads_none_of_its_parts() -> None:
    loaded = loaded_by("import pychasqui")
    assert {name for name in loaded if name.startswith("pychasqui")} == {"pychasqui", "pychasqui._version"}
    assert not loaded & {"asyncio", "hiredis", "msgspec", "ssl"}


def test_a_queue_does_not_load_the_worker() -> None:
    loaded = loaded_by("from pychasqui import Queue")
    assert not loaded & {"pychasqui.worker", "pychasqui._worker.wiring", "pychasqui._http.server"}


def test_the_help_of_the_command_loads_neither_asyncio_nor_redis() -> None:
    loaded = loaded_by(
        "import sys; sys.argv = ['chasqui', '--help']\nfrom pychasqui.cli.main import main\nassert main() == 0"
    )
    assert "click" in loaded
    assert not loaded & {"asyncio", "hiredis", "msgspec", "ssl", "pychasqui.queue", "pychasqui.worker"}


def test_a_queue_loads_only_what_adding_needs() -> None:
    loaded = loaded_by("from pychasqui import Queue\nQueue('mails', redis_url='redis://localhost')")
    cold = {"dlq", "embedded", "events", "inspector", "job_status", "repeatables", "results", "_core.cron"}
    assert not loaded & {f"pychasqui.{name}" for name in cold}
    assert not loaded & {"importlib.resources", "tomllib", "zipfile"}


def test_a_queue_reads_no_script_before_it_sends_one_unless_all_are_asked_for() -> None:
    count = "len([s for s in vars(scripts).values() if isinstance(s, scripts.Script) and 'hash' in vars(s)])"
    total = "len([s for s in vars(scripts).values() if isinstance(s, scripts.Script)])"
    code = f"from pychasqui import Queue\nfrom pychasqui._redis import scripts\nassert {count} == 0 < {total}\n"
    loaded_by(f"{code}Queue('mails', redis_url='redis://localhost')\nassert {count} == 0")
    loaded_by(f"{code}scripts.read_and_hash_all_scripts()\nassert {count} == {total}")


def test_all_scripts_are_read_where_asserts_are_not_executed() -> None:
    """PYTHONOPTIMIZE is set in many images."""
    program = (
        "from pychasqui._redis import scripts\nscripts.read_and_hash_all_scripts()\n"
        "print({'hash' in vars(s) for s in vars(scripts).values() if isinstance(s, scripts.Script)})"
    )
    ended = subprocess.run([sys.executable, "-P", "-O", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "{True}\n"


def test_a_worker_reads_each_script_when_it_starts() -> None:
    """Files that are replaced while it runs are another version's. It needs no server for that."""
    loaded_by(
        "import asyncio\nfrom pychasqui import Worker\nfrom pychasqui._redis import scripts\n"
        "every = [s for s in vars(scripts).values() if isinstance(s, scripts.Script)]\n"
        "read = lambda: [s for s in every if 'hash' in vars(s)]\n"
        "worker = Worker('mails', print, redis_url='redis://127.0.0.1:1')\n"
        "assert every and not read()\n"
        "async def start():\n"
        "    running = asyncio.ensure_future(worker.run())\n"
        "    while not read(): await asyncio.sleep(0.01)\n"
        "    await worker.close()\n"
        "    await asyncio.wait({running})\n"
        "asyncio.run(asyncio.wait_for(start(), 50))\n"
        "assert read() == every"
    )
