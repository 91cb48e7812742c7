"""Writes llms.txt: the pages of the handbook in their order, with a sentence each, for language models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .links import FENCE

HEAD = """# pychasqui

> A job queue for Python on Redis Streams: asyncio, at least once, nothing trimmed, byte for byte compatible with
> ChasquiMQ. `pip install pychasqui`; `Queue` adds jobs, `Worker` runs them, `chasqui` is the command.

All pages in one file: [llms-full.txt](llms-full.txt)
"""


def walk(nav: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Section, title and path of each page of the navigation, in its order."""
    for item in nav:
        ((title, below),) = item.items()
        if isinstance(below, str):
            yield section, title, below
        else:
            yield from walk(below, f"{section}: {title}" if section else title)


def first_sentence(page: str) -> str:
    """The first sentence of a page that is prose."""
    for paragraph in FENCE.sub("", page).split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith(("#", "|", "!", "<", "- ", "* ", "1.", ":::")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
            match = re.match(r"(.+?[.:!?])(?: |$)", plain)
            return (match[1] if match else plain).rstrip(":")
    return ""


def llms_txt(nav: list[Any], pages: Mapping[str, str]) -> str:
    lines, current = [HEAD], ""
    for section, title, path in walk(nav):
        if section != current:
            current = section
            lines.append(f"\n## {section}\n")
        about = first_sentence(pages[path])
        lines.append(f"- [{title}]({path.removesuffix('.md')}.html)" + (f": {about}" if about else ""))
    return "\n".join(lines) + "\n"


def llms_full_txt(nav: list[Any], pages: Mapping[str, str]) -> str:
    """All pages in the order of the navigation."""
    return "\n\n".join(f"<!-- {path} -->\n\n{pages[path].strip()}" for _, _, path in walk(nav)) + "\n"
