"""The files that run workers name commands, settings, pages and times that fit: systemd, the image, Kubernetes."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pychasqui._core.defaults import SHUTDOWN_DEADLINE_S
from pychasqui.settings import SETTINGS
from tests.docs.blocks import read_command
from tests.support.waiting import eventually

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CLEAN_UP_S = 5  # what cancelled handlers have, beyond the deadline
KILLED_AFTER_S = 15  # when a supervisor kills a process that has not ended, beyond the deadline
SECTIONS = {"Unit", "Service", "Install"}
PAGES = {"/metrics", "/healthz", "/readyz"}
KINDS = {
    ("apps/v1", "Deployment"): {"replicas", "selector", "strategy", "template"},
    ("policy/v1", "PodDisruptionBudget"): {"maxUnavailable", "selector"},
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "advanced",
        "triggers",
    },
}


def read_unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capital letters
    unit.read(path)
    return unit


def manifests() -> list[dict[str, Any]]:
    paths = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [one for path in paths for one in yaml.safe_load_all(path.read_text())]


def containers() -> list[dict[str, Any]]:
    specs = [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] == "Deployment"]
    return [container for spec in specs for container in spec["containers"]]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "worker" / "compose.yaml").read_text())["services"]
    return found


def assert_settings_read(names: list[str]) -> None:
    known = {variable for setting in SETTINGS.values() for variable in setting.all_variables}
    assert set(names) <= known, "a variable that no setting reads"


# systemd -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_that_exists_and_waits_for_its_end(path: Path) -> None:
    unit = read_unit(path)
    assert set(unit.sections()) == SECTIONS
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "chasqui"
    read_command(shlex.join(["chasqui", *arguments]))
    assert service["Restart"] == "always"
    if arguments[0] == "worker":
        assert int(service["TimeoutStopSec"]) >= SHUTDOWN_DEADLINE_S + KILLED_AFTER_S
        assert (service["Type"], int(service["WatchdogSec"])) == ("notify", 30)
        assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        (tmp_path / path.name).write_text(re.sub(r"/opt/shop/\.venv/bin/chasqui", "/bin/true", path.read_text()))
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / path.name) for path in UNITS)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    complaints = [line for line in checked.stderr.splitlines() if str(tmp_path) in line or "chasqui-" in line]
    assert complaints == []


def test_the_variables_of_the_unit_are_settings() -> None:
    lines = (DEPLOY / "systemd" / "worker.env").read_text().splitlines()
    assert_settings_read([line.partition("=")[0] for line in lines if line and not line.startswith("#")])


# The image and compose -----------------------------------------------------------------------------------------------


def read_image_steps() -> list[list[str]]:
    """The steps of the worker's Dockerfile: a word and what follows."""
    lines = re.sub(r"\\\n\s*", "", (DEPLOY / "worker" / "Dockerfile").read_text()).splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


def is_healthy(port: int) -> bool:
    """Runs the HEALTHCHECK of the image, for a worker on another port."""
    ((said, (program, *arguments)),) = [
        (dict(read_image_steps())["EXPOSE"], json.loads(words.partition("CMD ")[2]))
        for step, words in read_image_steps()
        if step == "HEALTHCHECK"
    ]
    assert program == "python"
    words = [argument.replace(f":{said}/", f":{port}/") for argument in arguments]
    return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == 0


def test_the_image_installs_the_package_with_extras_that_it_has() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    ((name, extras),) = re.findall(r"^pip install --no-cache-dir '(\w+)\[([\w,]+)\]'$", dict(read_image_steps())["RUN"])
    assert name == project["name"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_the_image_copies_files_that_exist_and_runs_a_worker_without_rights() -> None:
    steps = read_image_steps()
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD"}
    assert {step for step, _ in steps} <= known
    said = dict(steps)
    assert (DEPLOY / "worker" / said["COPY"].split()[0]).exists()
    assert said["USER"] == "nobody"
    read_command(shlex.join(yaml.safe_load(said["CMD"])))
    assert_settings_read([word.partition("=")[0] for word in said["ENV"].split()])
    assert f":{said['EXPOSE']}/healthz" in said["HEALTHCHECK"]
    assert f"CHASQUI_METRICS_PORT={said['EXPOSE']}" in said["ENV"]


def test_compose_keeps_jobs_on_disk_and_gives_workers_time() -> None:
    found = services()
    assert "--appendonly" in found["redis"]["command"]
    assert "noeviction" in found["redis"]["command"]
    assert int(found["worker"]["stop_grace_period"].removesuffix("s")) >= SHUTDOWN_DEADLINE_S + CLEAN_UP_S
    assert_settings_read(list(found["worker"]["environment"]))
    read_command(shlex.join(found["exporter"]["command"]))
    read_command(shlex.join(found["exporter"]["healthcheck"]["test"][1:]))
    assert all(port.startswith("127.0.0.1:") for service in found.values() for port in service.get("ports", ()))


async def test_the_application_starts_is_ready_and_ends_with_exit_code_0(redis_url: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"CHASQUI_REDIS_URL": redis_url, "CHASQUI_METRICS_PORT": str(port)}
    command = [sys.executable, "-m", "pychasqui.cli", "worker", "app:worker"]
    process = subprocess.Popen(command, cwd=DEPLOY / "worker", env=environment, stderr=subprocess.PIPE, text=True)

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        await eventually(is_ready, timeout=30)
        assert is_healthy(port)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    assert '"event":"worker ' in log
    assert not is_healthy(port)


# Kubernetes ----------------------------------------------------------------------------------------------------------


def test_each_manifest_is_of_a_known_kind_with_known_fields() -> None:
    for one in manifests():
        fields = KINDS[one["apiVersion"], one["kind"]]
        assert set(one["spec"]) <= fields, one["kind"]
        assert one["metadata"]["name"].startswith("chasqui-")
    assert {one["kind"] for one in manifests()} == {kind for _, kind in KINDS}


def test_kubernetes_accepts_the_manifests() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="not installed: pip install --group deploy")
    for one in manifests():
        if one["kind"] != "ScaledObject":  # KEDA's own
            validator.validate(one, validator.latest_version(), strict=True)


def test_selectors_find_their_pods() -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in manifests() if one["kind"] == "Deployment"]
    for one in manifests():
        if "selector" in one["spec"]:
            assert one["spec"]["selector"]["matchLabels"] in labels


def test_each_container_runs_a_command_that_exists_with_settings_that_are_read() -> None:
    for container in containers():
        read_command(shlex.join(container["command"]))
        assert_settings_read([variable["name"] for variable in container["env"]])
        assert container["securityContext"]["runAsNonRoot"] is True


def test_probes_ask_pages_that_are_served_on_a_port_that_is_open() -> None:
    for container in containers():
        (port,) = container["ports"]
        words = [*container["command"], *(str(variable.get("value")) for variable in container["env"])]
        assert str(port["containerPort"]) in words
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
        assert {"/readyz", "/healthz"} <= PAGES


def test_a_pod_is_given_longer_than_its_worker_takes_to_close() -> None:
    (worker,) = [
        one for one in manifests() if one["metadata"]["name"] == "chasqui-worker" and "template" in one["spec"]
    ]
    pod = worker["spec"]["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] >= float(variables["CHASQUI_SHUTDOWN_DEADLINE_S"]) + CLEAN_UP_S


def test_the_scaler_asks_for_metrics_and_a_key_that_exist() -> None:
    (scaler,) = [one["spec"] for one in manifests() if one["kind"] == "ScaledObject"]
    assert scaler["scaleTargetRef"]["name"] in {one["metadata"]["name"] for one in manifests()}
    triggers = {one["name"]: one for one in scaler["triggers"]}
    described = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text()
    for name in ("lag", "age"):
        assert triggers[name]["type"] == "prometheus"
        (metric,) = re.findall(r"chasquimq_(\w+)\{", triggers[name]["metadata"]["query"])
        assert f"`{metric}`" in described
    assert triggers["length"]["type"] == "redis-streams"
    assert triggers["length"]["metadata"]["stream"] == "{chasqui:mail}:stream"
