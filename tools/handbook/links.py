"""Finds links that lead nowhere, in the pages before the build and in the site after it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^(?P<fence>```+|~~~+)[^\n]*\n.*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} (?P<title>.+?)\s*$", re.MULTILINE)


def without_code(page: str) -> str:
    """The page without code: what stands there in brackets is no link, and what begins with # is no heading."""
    return re.sub(r"(`+)[^`]+?\1", "", FENCE.sub("", page))


def links_of(page: str) -> list[str]:
    return [match["target"] for match in LINK.finditer(without_code(page))]


def slug(title: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it; the one of GitHub is the same for plain words."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def anchors_of(page: str) -> set[str]:
    seen: dict[str, int] = {}
    anchors = set()
    for match in HEADING.finditer(FENCE.sub("", page)):
        name = slug(match["title"])
        count = seen[name] = seen.get(name, -1) + 1
        anchors.add(f"{name}_{count}" if count else name)
    return anchors


def broken_links(pages: Mapping[str, str], assets: frozenset[str] = frozenset()) -> list[str]:
    """Each link between pages that leads to no page, no file or no heading."""
    anchors = {path: anchors_of(text) for path, text in pages.items()}
    return [
        f"{path}: {link}"
        for path, text in pages.items()
        for link in links_of(text)
        if not urlsplit(link).scheme and not _leads_somewhere(path, link, anchors, assets)
    ]


def _leads_somewhere(path: str, link: str, anchors: Mapping[str, set[str]], assets: frozenset[str]) -> bool:
    parts = urlsplit(link)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), parts.path)) if parts.path else path
    if target not in anchors:
        return target in assets and not parts.fragment
    return not parts.fragment or parts.fragment in anchors[target]


class _Page(HTMLParser):
    """The links and the ids of a page of the site."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.foreign: list[str] = []  # what a browser loads from another machine

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)
            if name == "src" and value and urlsplit(value).netloc:
                self.foreign.append(value)


def broken_links_of_site(site: Path) -> Iterator[str]:
    """Each link of the built pages that leads to no file or id, and all that is loaded from another machine."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = page = _Page()
        page.feed(path.read_text())
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        yield from (f"{path.relative_to(site)}: {link} is loaded from the network" for link in page.foreign)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            wanted = unquote(parts.fragment)
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link}: there is no such file"
            elif wanted and target in pages and wanted not in pages[target].ids | {"__skip", "__toc"}:
                yield f"{path.relative_to(site)}: {link}: there is no such id"
