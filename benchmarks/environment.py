"""Every peer's own environment under .bench, what is installed there, and the machine it all runs on."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.roster import Peer
from benchmarks.server import ROOT

BENCH = ROOT / ".bench"
PLOT_HOME, PLOT_PACKAGES = "venv-plot", ("matplotlib",)
INSTALLED = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


class CannotInstall(Exception):
    """An environment could not be made; the text says why."""


def interpreter(peer: Peer) -> list[str]:
    """The command that runs a program of this peer."""
    if peer.kind == "node":
        return ["node"]
    return [sys.executable if peer.home is None else str(BENCH / peer.home / "bin" / "python")]


def process_environment(peer: Peer) -> dict[str, str]:
    """PYTHONSAFEPATH keeps a peer's file from hiding the library of the same name."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": ""}
    if peer.home is None:
        environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), peer.source or str(ROOT / "src")))
    if peer.kind == "node":
        environment["NODE_PATH"] = str(BENCH / "node" / "node_modules")
    return environment


def prepare(peers: Iterable[Peer]) -> dict[str, str]:
    """Make every environment that is missing; what could not be made is answered with the reason."""
    BENCH.mkdir(exist_ok=True)
    (BENCH / ".gitignore").write_text("*\n")
    missing: dict[str, str] = {}
    for peer in peers:
        try:
            if peer.kind == "node":
                _prepare_node(peer.home or "node", peer.packages)
            elif peer.home is not None:
                prepare_venv(peer.home, peer.packages)
        except CannotInstall as error:
            missing[peer.name] = str(error)
    return missing


def prepare_venv(home: str, packages: tuple[str, ...]) -> Path:
    """Returns a virtual environment with these packages; makes it again when the list has changed."""
    folder, stamp = BENCH / home, BENCH / home / ".packages"
    if not (stamp.exists() and stamp.read_text() == "\n".join(packages)):
        print(f"setting up .bench/{home}: {' '.join(packages)}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", *packages])
        stamp.write_text("\n".join(packages))
    return folder / "bin" / "python"


def _prepare_node(home: str, packages: tuple[str, ...]) -> None:
    if not (shutil.which("npm") and shutil.which("node")):
        raise CannotInstall("there is no npm on this machine")
    folder, stamp = BENCH / home, BENCH / home / ".packages"
    if not (stamp.exists() and stamp.read_text() == "\n".join(packages)):
        print(f"setting up .bench/{home}: {' '.join(packages)}", flush=True)
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], folder)
        stamp.write_text("\n".join(packages))


def _run(command: list[str], folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise CannotInstall(f"{Path(command[0]).name} failed: {lines[-1]}")


def versions(peer: Peer) -> dict[str, str]:
    """What a reader wants to know of this peer's environment, by package."""
    if peer.kind == "node":
        found = {name: _node_version(name) for name in peer.printable}
        return found | {"node": subprocess.check_output(["node", "--version"], text=True).strip().lstrip("v")}
    return {name: installed(peer)[name] for name in peer.printable}


def installed(peer: Peer) -> dict[str, str]:
    """Everything that is installed in the environment of a Python peer."""
    if peer.kind != "python":
        return {}
    found = json.loads(subprocess.check_output([*interpreter(peer), "-c", INSTALLED], env=process_environment(peer)))
    return {str(name): str(version) for name, version in sorted(found.items())}


def _node_version(name: str) -> str:
    manifest = BENCH / "node" / "node_modules" / name / "package.json"
    return str(json.loads(manifest.read_text())["version"])


def machine() -> dict[str, Any]:
    """The processor, its cores, the memory and the system, as far as Linux tells."""
    return {
        "cpu": _first_field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "memory_gb": round(int((_first_field("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) / 1024**2, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _first_field(path: str, name: str) -> str | None:
    if not os.path.exists(path):
        return None
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return None
