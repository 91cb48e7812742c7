"""Every code block of the handbook runs; blocks.py says how."""

from __future__ import annotations

import asyncio
import json
import tomllib
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import pychasqui
from tests.docs.blocks import DOCS, PageRun, blocks_of, pages, read_command
from tests.support.cases import in_one_test
from tests.support.temporary import short_folder

PAGES = pages()
RUN = [path for path, text in PAGES.items() if {"python", "console"} & {block.language for block in blocks_of(text)}]
LANGUAGES = {"python", "console", "sh", "text", "toml", "json", "yaml", "ini", "dockerfile"}


def read_names() -> dict[str, Any]:
    """What a block may use without defining it: the names of the package, a queue, and data."""
    names = {name: getattr(pychasqui, name) for name in pychasqui.__all__}
    data = {"to": "ada@example.org"}
    return names | {"asyncio": asyncio, "datetime": datetime, "timedelta": timedelta, "UTC": UTC, "data": data}


# What a page needs beside the package, if that may be missing.
NEEDS = {
    "how-to/django.md": ("django_tasks",),
    "how-to/fastapi.md": ("fastapi", "httpx"),
    "how-to/flask.md": ("flask",),
    "how-to/sentry-and-structlog.md": ("sentry_sdk", "structlog"),
}


@pytest.mark.parametrize("path", RUN)
def test_the_blocks_of_a_page_run(path: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing := [name for name in NEEDS.get(path, ()) if find_spec(name) is None]:
        pytest.skip(f"{missing[0]} is not installed: pip install --group test")
    monkeypatch.setenv("XDG_DATA_HOME", str(short_folder()))
    page = PageRun(tmp_path, redis_url, read_names())
    try:
        page.run(blocks_of(PAGES[path]))
    finally:
        codes = page.close()
    assert set(codes) <= {0}


@in_one_test("path", PAGES)
def test_every_block_of_a_page_can_be_read(path: str) -> None:
    for block in blocks_of(PAGES[path]):
        assert block.language in LANGUAGES, f"{path}, line {block.line}: no test reads {block.language}"
        if block.language == "json":
            json.loads(block.code)
        elif block.title.endswith(".py"):
            compile(block.code, f"{path}, line {block.line}", "exec")
        elif block.language == "toml":
            tomllib.loads(block.code)
        elif block.language == "sh":
            for line in block.code.splitlines():
                read_command(line)


def test_every_fence_is_one_that_is_found() -> None:
    for path, text in PAGES.items():
        assert text.count("\n```") == 2 * len(blocks_of(text)), f"{path} has a fence without a language"
    assert DOCS.is_dir()
