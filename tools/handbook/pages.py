"""Collects the pages of the handbook: docs/, the files of the repository that they link to, and the API's reference."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from .api import reference
from .links import LINK, links_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = re.compile(r"^<!-- api: (?P<names>[\w. ]+) -->$", re.MULTILINE)
PROJECT = {  # files of the repository that are pages of their own, with a place in the navigation
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/results/results.md": "project/results.md",
    "deploy/README.md": "project/deploy.md",
    "deploy/acl/README.md": "project/acl.md",
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".service": "ini"}
LANGUAGES |= {".env": "ini", "Dockerfile": "docker"}  # a file without a suffix by its name


def api_names(page: str) -> list[str]:
    """The names whose reference is put into the page, by a line `<!-- api: Queue Job -->`."""
    return [name for match in API.finditer(page) for name in match["names"].split()]


def collect() -> tuple[dict[str, str], dict[str, bytes]]:
    """The text of each page and the bytes of each other file, by their paths within the site."""
    sources = {str(PurePosixPath("docs", path.relative_to(DOCS).as_posix())): path for path in DOCS.rglob("*.md")}
    sources |= {name: ROOT / name for name in PROJECT}
    pages: dict[str, str] = {}
    files: dict[str, bytes] = {
        path.relative_to(DOCS).as_posix(): path.read_bytes()
        for path in DOCS.rglob("*")
        if path.is_file() and path.suffix != ".md"
    }
    for name, path in sorted(sources.items()):
        _add_page(name, path.read_text(), pages, files)
    return pages, files


def _add_page(name: str, text: str, pages: dict[str, str], files: dict[str, bytes]) -> None:
    place = _place(name)
    text = API.sub(lambda match: "\n\n".join(reference(one) for one in match["names"].split()), text)
    for link in set(links_of(text)):
        parts = urlsplit(link)
        if parts.scheme or not parts.path:
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts.path))
        if target.startswith("docs/") and name.startswith("docs/"):
            continue
        there = _put(target, pages, files)
        new = posixpath.relpath(there, posixpath.dirname(place) or ".") if there else ""
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        text = _relink(text, link, f"{new}{fragment}" if new else "")
    pages[place] = text


def _place(name: str) -> str:
    return name.removeprefix("docs/") if name.startswith("docs/") else PROJECT[name]


def _put(target: str, pages: dict[str, str], files: dict[str, bytes]) -> str:
    """Puts a file of the repository into the site; returns its place, or nothing for a folder or a missing file."""
    path = ROOT / target
    if target.startswith("docs/") or target in PROJECT:
        return _place(target)
    if not path.is_file():
        return ""
    if path.suffix in (".png", ".svg"):
        files[f"files/{target}"] = path.read_bytes()
        return f"files/{target}"
    place = f"files/{target}.md"
    language = LANGUAGES.get(path.suffix or path.name, "text")
    pages[place] = f"# {target}\n\n````{language}\n{path.read_text().rstrip()}\n````\n"
    return place


def _relink(text: str, link: str, new: str) -> str:
    """The text with one link replaced; without a new one its words stay, and the link goes."""
    if new:
        return text.replace(f"]({link})", f"]({new})")
    return re.sub(rf"\[([^\]]*)\]\({re.escape(link)}\)", r"\1", text)


__all__ = ["LINK", "api_names", "collect"]
