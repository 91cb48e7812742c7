"""`python -m tools.handbook`: collects the pages, builds the site, and fails if a link of it leads nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from .links import broken_links, broken_links_of_site
from .llms import llms_full_txt, llms_txt, walk
from .pages import ROOT, collect

BUILD = ROOT / "build" / "handbook"
WORKER = Path(__file__).with_name("offline-worker.js")
STYLE = Path(__file__).with_name("handbook.css")
NETWORK_WORKER = "https://unpkg.com/iframe-worker/shim"
SETTINGS = ROOT / "zensical.toml"


def main() -> int:
    nav = tomllib.loads(SETTINGS.read_text())["project"]["nav"]
    pages, files = collect()
    faults = [f"the navigation names {path}, which is no page" for _, _, path in walk(nav) if path not in pages]
    faults += broken_links(pages, frozenset(files))
    if not faults:
        _write(BUILD / "pages", pages, {**files, STYLE.name: STYLE.read_bytes()})
        _run_zensical()
        site = BUILD / "site"
        _serve_worker_locally(site)
        (site / "llms.txt").write_text(llms_txt(nav, pages))
        (site / "llms-full.txt").write_text(llms_full_txt(nav, pages))
        faults = list(broken_links_of_site(site))
        print(f"{len(pages)} pages: open {(site / 'index.html').relative_to(ROOT)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _write(folder: Path, pages: dict[str, str], files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {**{name: text.encode() for name, text in pages.items()}, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _serve_worker_locally(site: Path) -> None:
    """Replaces the one script that the theme loads from the network by ours, which does the same."""
    place = Path("assets", "javascripts", WORKER.name)
    shutil.copy(WORKER, site / place)
    for path in site.rglob("*.html"):
        text = path.read_text()
        path.write_text(text.replace(NETWORK_WORKER, os.path.relpath(site / place, path.parent)))


def _run_zensical() -> None:
    """Builds the site. Zensical speaks only if something is wrong."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", str(SETTINGS)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if built.returncode or "warning" in (built.stdout + built.stderr).lower():
        sys.stderr.write(built.stdout + built.stderr)
    if built.returncode:
        sys.exit(built.returncode)


if __name__ == "__main__":
    sys.exit(main())
