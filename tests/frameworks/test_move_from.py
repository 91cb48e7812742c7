"""The programs that the pages about moving here show first are programs of the packages that they are for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks_of
from tests.frameworks.environments import CannotInstall, environment

pytestmark = pytest.mark.timeout(300)  # the first one installs the packages
# taskiq-redis 1.0 does not load beside taskiq 0.13.
PACKAGES = ("celery", "redis", "rq", "arq", "dramatiq", "taskiq<0.13", "taskiq-redis")


@pytest.mark.parametrize("package", ("celery", "rq", "arq", "dramatiq", "taskiq"))
def test_the_program_before_the_move_is_one_of_the_package(package: str, tmp_path: Path) -> None:
    try:
        chosen = environment(("3.11", "3.12", "3.13"), *PACKAGES)
    except CannotInstall as reason:
        pytest.skip(str(reason))
    page = (DOCS / "how-to" / "move-from" / f"{package}.md").read_text()
    (before,) = (block for block in blocks_of(page) if block.title == "before.py")
    (tmp_path / "before.py").write_text(before.code)
    loaded = subprocess.run(
        [chosen.python, "-c", f"import before, {package}; print({package}.__file__)"],
        cwd=tmp_path,
        env=chosen.variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert package in loaded.stdout
