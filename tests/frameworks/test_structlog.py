"""The recipe for structlog in the handbook, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pychasqui import SyncQueue
from tests.docs.blocks import DOCS, blocks_of

pytest.importorskip("structlog")

PAGE = (DOCS / "how-to" / "sentry-and-structlog.md").read_text()


def test_the_lines_of_a_task_have_its_job(redis_url: str, tmp_path: Path) -> None:
    (recipe,) = (block for block in blocks_of(PAGE) if block.title == "paid.py")
    (tmp_path / "paid.py").write_text(recipe.code)
    with SyncQueue("default", redis_url=redis_url) as queue:
        queue.add("charge", {"order": 17}, job_id="order-17")
    worker = subprocess.run(
        [sys.executable, "-m", "pychasqui.cli", "worker", "--burst", "paid:app"],
        cwd=tmp_path,
        env={**os.environ, "CHASQUI_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    printed = re.search(r"prints `(.+?)`", PAGE)
    assert printed is not None
    assert worker.stdout.splitlines() == [printed[1]]
