"""The handbook is whole: each page has its place, each link leads somewhere, each public name is described."""

from __future__ import annotations

import importlib
import re
import tomllib
import types
from pathlib import Path

import pytest

import pychasqui
from pychasqui import errors, metrics
from pychasqui._wire.event import RETRY_SCHEDULED
from tools.handbook.api import find
from tools.handbook.links import anchors_of, broken_links
from tools.handbook.llms import first_sentence, llms_full_txt, llms_txt, walk
from tools.handbook.pages import api_names, collect

pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAV = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, BaseException)}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return collect()[0]


def test_the_navigation_has_each_page_once(pages: dict[str, str]) -> None:
    listed = [path for _, _, path in walk(NAV)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {path for path in pages if not path.startswith("files/")}


def test_each_link_leads_to_a_page_a_file_or_a_heading() -> None:
    pages, files = collect()
    assert broken_links(pages, frozenset(files)) == []


def test_a_link_to_a_missing_page_or_heading_is_found() -> None:
    pages = {"a.md": "# A\n\n[b](b.md), [c](b.md#two-words), [d](#a)\n", "b.md": "# B\n\n## Two words\n"}
    assert broken_links(pages) == []
    pages["a.md"] += "[e](c.md), [f](b.md#three), [g](#b) `[h](none.md)`"
    assert broken_links(pages) == ["a.md: c.md", "a.md: b.md#three", "a.md: #b"]


def test_the_reference_has_each_public_name(pages: dict[str, str]) -> None:
    listed = [name for path in DOCS.rglob("*.md") for name in api_names(path.read_text())]
    assert len(listed) == len(set(listed))
    assert set(pychasqui.__all__) - set(listed) - ERRORS == {"__version__"}
    described = {anchor for text in pages.values() for anchor in anchors_of(text)}
    assert {name.rpartition(".")[2].lower() for name in listed} <= described


def names_users_import() -> set[str]:
    """Names that the docs, the examples and deploy/ import, and all of the modules that users import from."""
    sources = [path for folder in ("docs", "examples", "deploy") for path in (ROOT / folder).rglob("*.[mp][dy]")]
    found = set()
    for path in [ROOT / "README.md", *sources]:
        for module, names in re.findall(
            r"^ *from pychasqui([\w.]*) import \(?([\w, ]+)", path.read_text(), re.MULTILINE
        ):
            found |= {f"{module}.{name.strip()}"[1:] if module else name.strip() for name in names.split(",")}
    for name in ("testing", "logs", "integrations.django", "integrations.prometheus", "integrations.sentry"):
        found |= {f"{name}.{one}" for one in importlib.import_module(f"pychasqui.{name}").__all__}
    return found - {""}


def test_the_reference_has_each_name_that_users_import() -> None:
    listed = {name for path in DOCS.rglob("*.md") for name in api_names(path.read_text())}
    imported = names_users_import()
    assert {"Queue", "testing.inline", "integrations.django.ChasquiBackend"} <= imported
    described = {id(find(name)) for name in listed}  # a module may offer what another one defines
    missing = {name for name in imported - ERRORS if id(find(name)) not in described}
    assert {name for name in missing if not isinstance(find(name), types.ModuleType)} == set()


def test_the_reference_has_each_record_that_a_metrics_sink_receives() -> None:
    listed = {name for path in DOCS.rglob("*.md") for name in api_names(path.read_text())}
    received = {
        annotation
        for method in vars(pychasqui.MetricsSink).values()
        for annotation in getattr(method, "__annotations__", {}).values()
        if isinstance(annotation, str) and annotation in vars(metrics)
    }
    assert "JobOutcome" in received
    assert {f"metrics.{name}" for name in received} <= listed


def test_the_reference_shows_no_address_in_memory_and_no_empty_table(pages: dict[str, str]) -> None:
    reference = "".join(pages[path] for path in pages if path.startswith("reference/api/"))
    assert not re.search(r" at 0x|<factory>|ForwardRef", reference)
    assert "| --- | --- |\n\n" not in reference


def test_the_reference_has_each_method_and_each_option(pages: dict[str, str]) -> None:
    queue = pages["reference/api/queue.md"]
    methods = {name for name in dir(pychasqui.Queue) if not name.startswith("_")}
    assert methods == set(re.findall(r"^### Queue\.(\w+)$", queue, re.MULTILINE))
    assert "| `max_stream_len` | how many jobs may wait or run" in queue
    assert "    redis_url: str | None = 'redis://127.0.0.1:6379'," in queue
    reference = "".join(pages[path] for path in pages if path.startswith("reference/api/"))
    assert not re.search(r"Option\[|Broker|: _\w", reference), "a word of the engine's"


def test_the_page_of_errors_has_each_error_and_no_other() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    listed = re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(ERRORS - {"ChasquiError"})


def test_the_page_of_events_has_each_kind_and_no_other() -> None:
    page = (DOCS / "reference" / "events.md").read_text()
    source = (ROOT / "src" / "pychasqui" / "_wire" / "event.py").read_text()
    written = set(re.findall(r'Event\("([\w-]+)"', source)) | {RETRY_SCHEDULED}
    for script in (ROOT / "src" / "pychasqui" / "_redis" / "lua").rglob("*.lua"):
        written |= set(re.findall(r"'e', '([\w-]+)'", script.read_text()))
    assert "waiting" in written
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == written


def test_the_page_of_metrics_has_each_metric_that_the_source_names() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'Metric\(\s*f?"chasquimq_([a-z_]+)"', path.read_text())
    }
    assert "worker_processes" in named
    assert [name for name in named if f"`{name}`" not in page] == []


def test_llms_txt_has_each_page_with_a_sentence(pages: dict[str, str]) -> None:
    text = llms_txt(NAV, pages)
    lines = re.findall(r"^- \[.+\]\((.+)\.html\)(: .+)?$", text, re.MULTILINE)
    assert [path for path, _ in lines] == [path.removesuffix(".md") for _, _, path in walk(NAV)]
    assert [path for path, about in lines if not about] == []
    assert all(page.strip() in llms_full_txt(NAV, pages) for path, page in pages.items() if path.startswith("how-to/"))


def test_the_first_sentence_of_a_page_is_its_prose() -> None:
    assert first_sentence("# A\n\n```sh\nls\n```\n\nIt [does](x.md) so.\nAnd more.\n") == "It does so."
