"""The backend for Django's tasks on every framework that it is for; django_checks.py has the checks."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.frameworks.environments import ROOT, CannotInstall, Environment, environment, own_environment

pytestmark = pytest.mark.timeout(300)  # dozens of checks each, and the first one installs a framework
CHECKS = Path(__file__).with_name("django_checks.py")
OPTIONS = ("-q", "--noconftest", "-c", "/dev/null", "--rootdir", str(ROOT), "-p", "no:cacheprovider")


def run_checks(expected: str, chosen: Environment, redis_url: str, folder: Path) -> None:
    variables = {"CHECKS_FOLDER": str(folder), "EXPECTED": expected, "CHASQUI_REDIS_URL": redis_url}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    checks = subprocess.run(
        [chosen.python, "-m", "pytest", *OPTIONS, "-W", "error", str(CHECKS)],
        env=chosen.variables | variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=220,
        check=False,
    )
    assert checks.returncode == 0, checks.stdout


def test_the_backport_runs_tasks_on_an_older_django(redis_url: str, tmp_path: Path) -> None:
    if find_spec("django_tasks") is None:
        pytest.skip("django-tasks is not installed: pip install --group test")
    chosen = own_environment()
    chosen.variables["DJANGO_TASKS_BACKPORT"] = "1"  # its app is in INSTALLED_APPS
    run_checks("django_tasks 5.2", chosen, redis_url, tmp_path)


@pytest.mark.parametrize("version", ("6.0", "6.1"))
def test_django_runs_tasks(version: str, redis_url: str, tmp_path: Path) -> None:
    try:
        chosen = environment(("3.12", "3.13", "3.14"), f"django~={version}.0")
    except CannotInstall as error:
        pytest.skip(str(error))
    run_checks(f"django.tasks {version}", chosen, redis_url, tmp_path)
