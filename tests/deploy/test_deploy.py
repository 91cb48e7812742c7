"""The files of deploy/ fit together: named files exist, targets are services, and the demonstration runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pychasqui import Queue
from pychasqui.cli.exporter import exporter
from tests.support.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
yaml = pytest.importorskip("yaml")


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = read("docker-compose.yaml")["services"]
    return found


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Files and folders of ours, by where the service finds them."""
    split = [volume.split(":") for volume in service.get("volumes", ())]
    return {inside: DEPLOY / outside for outside, inside, *_ in split}


def test_every_file_is_one_that_can_be_read() -> None:
    names = [path for path in DEPLOY.rglob("*") if path.suffix in (".yaml", ".yml")]
    assert len(names) >= 5
    for path in names:
        assert all(isinstance(one, dict) for one in yaml.safe_load_all(path.read_text())), path


def test_each_file_and_service_that_a_service_names_exists(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert ("image" in service) != ("build" in service), name
        assert all(path.exists() for path in mounts(service).values()), name
        assert set(service.get("depends_on", ())) <= services.keys()
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_the_image_is_made_of_files_that_exist_and_are_not_left_out() -> None:
    taken = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = [source for line in DOCKERFILE.splitlines() if line.startswith("COPY ") for source in line.split()[1:-1]]
    assert set(copied) == taken
    assert all((DEPLOY.parent / source).exists() for source in copied)


def test_the_image_can_be_built_of_the_files_that_it_copies(tmp_path: Path) -> None:
    """Does the COPY lines and the RUN line without a container: pip builds the package of what was copied."""
    lines = [line.split() for line in DOCKERFILE.splitlines()]
    for _, *sources, target in (words for words in lines if words[:1] == ["COPY"]):
        for source in (DEPLOY.parent / name for name in sources):
            place = tmp_path / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
    ((folder, extra),) = re.findall(r"^RUN pip install --no-cache-dir '/(\w+)\[(\w+)\]'$", DOCKERFILE, re.MULTILINE)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / folder, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = {name.rpartition("/")[2]: name for name in wheel.namelist()}
        assert "chasqui = pychasqui.cli.__main__:main" in wheel.read(names["entry_points.txt"]).decode()
        assert f"Provides-Extra: {extra}\n" in wheel.read(names["METADATA"]).decode()
    assert (tmp_path / "app" / "demo.py").exists()


def test_ports_are_open_to_the_local_machine_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_exporter_is_asked_for_what_it_knows(services: dict[str, Any]) -> None:
    program, command, *arguments = services["exporter"]["command"]
    assert (program, command) == ("chasqui", "exporter")
    asked = exporter.make_context("exporter", list(arguments)).params
    assert (asked["queues"], asked["host"], asked["port"]) == (("demo",), "0.0.0.0", 9401)


def test_prometheus_scrapes_services_and_finds_its_rules(services: dict[str, Any]) -> None:
    settings = read("prometheus/prometheus.yml")
    folder = mounts(services["prometheus"])["/etc/prometheus"]
    assert all((folder / name).exists() for name in settings["rule_files"])
    (scraped,) = settings["scrape_configs"]
    targets = [target for group in scraped["static_configs"] for target in group["targets"]]
    assert sorted(targets) == ["demo:9400", "exporter:9401"]
    assert {target.partition(":")[0] for target in targets} <= services.keys()


def test_grafana_finds_prometheus_and_the_dashboard(services: dict[str, Any]) -> None:
    grafana = services["grafana"]
    inside = mounts(grafana)
    assert inside["/etc/grafana/provisioning"] == DEPLOY / "grafana" / "provisioning"
    (source,) = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = read("grafana/provisioning/dashboards/chasqui.yaml")["providers"]
    board = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert board.startswith(provider["options"]["path"] + "/")
    assert inside[board].samefile(DEPLOY / "grafana" / "chasqui.json")


async def test_the_demonstration_adds_jobs_and_shows_what_it_does(redis_url: str) -> None:
    environment = os.environ | {"CHASQUI_REDIS_URL": redis_url, "METRICS_PORT": "0"}
    command = [sys.executable, "-P", str(DEPLOY / "demo.py")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    (where,) = islice((found[0] for line in process.stderr if (found := re.search(r"http://\S+", line))), 1)

    def shows_both() -> bool:
        with urllib.request.urlopen(where, timeout=40) as answer:
            text = answer.read().decode()
        return "jobs_enqueued_total{" in text and 'jobs_completed_total{queue="demo"' in text

    try:
        await eventually(shows_both, timeout=30)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        async with Queue("demo", redis_url=redis_url) as queue:
            await queue.obliterate()
    assert process.returncode == 0
