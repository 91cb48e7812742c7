"""The published package: few dependencies, the same bytes from every build, and everything that a reader needs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = {"click", "hiredis", "msgspec", "ulid-transform"}


def build(folder: Path, *, umask: int) -> dict[str, Path]:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        umask=umask,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
    )
    return {path.suffix: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make release-check` fills."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    program = [sys.executable, str(ROOT / "tools" / "release-check"), str(folder)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, umask=0o022)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def built(release: Path) -> dict[str, Path]:
    return {path.suffix: path for path in release.iterdir() if path.suffix != ".json"}


def test_two_builds_are_the_same_to_the_byte(built: dict[str, Path], tmp_path: Path) -> None:
    again = build(tmp_path, umask=0o022)
    digests = [
        {kind: hashlib.sha256(path.read_bytes()).hexdigest() for kind, path in one.items()} for one in (built, again)
    ]
    assert digests[0] == digests[1]
    assert digests[0].keys() == {".whl", ".gz"}


def test_every_library_has_a_lower_bound_and_no_upper_one() -> None:
    """An upper bound would keep users from the version that mends a vulnerability."""
    project = PROJECT["project"]
    needed = [
        *project["dependencies"],
        *(need for extra in project["optional-dependencies"].values() for need in extra),
    ]
    unbound = [need for need in needed if not re.fullmatch(r"[a-z-]+>=[0-9.]+(; .*)?", need)]
    assert unbound == []


def test_a_release_is_checked_and_has_a_bill_of_materials(release: Path) -> None:
    (path,) = release.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {component["name"] for component in bill["components"]} >= RUNTIME
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", component["purl"]) for component in bill["components"])
    own = bill["metadata"]["component"]
    (edge,) = (edge for edge in bill["dependencies"] if edge["ref"] == own["bom-ref"])
    assert {re.split("[/@]", needed)[1] for needed in edge["dependsOn"]} == RUNTIME
    for reference in own["externalReferences"]:
        content = (release / reference["url"]).read_bytes()
        assert reference["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def audit(folder: Path, auditor: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs tools/audit with a program in the place of pip-audit."""
    (folder / "pip_audit.py").write_text(auditor)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    program = [sys.executable, str(ROOT / "tools" / "audit"), *options]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)


def answer(*libraries: dict[str, Any]) -> str:
    return f"print({json.dumps({'dependencies': libraries})!r})\n"


CLICK = {"name": "click", "version": "8.1", "vulns": []}
UNKNOWN = {"name": "hiredis", "skip_reason": "not found"}


@pytest.mark.parametrize("options", ((), ("--if-possible",)), ids=("audit", "check"))
def test_an_audit_fails_by_a_known_vulnerability_and_names_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = audit(tmp_path, answer({**CLICK, "vulns": [{"id": "CVE-1"}]}, UNKNOWN), *options)
    assert (ended.returncode, ended.stderr) == (1, "audit: click 8.1: CVE-1\n")


def test_an_audit_says_how_many_libraries_have_no_known_vulnerability(tmp_path: Path) -> None:
    ended = audit(tmp_path, answer(CLICK, UNKNOWN))
    said = "audit: no known vulnerability in 1 libraries; it does not know hiredis\n"
    assert (ended.returncode, ended.stderr) == (0, said)


@pytest.mark.parametrize(
    ("auditor", "why"),
    (
        ("raise SystemExit('no network')\n", "cannot be asked, so no vulnerability was looked for: no network"),
        (answer(UNKNOWN), "no service that knows the libraries can be reached, so no vulnerability was looked for"),
    ),
    ids=("no answer", "an index without that service"),
)
def test_an_audit_without_a_service_says_so_and_fails_no_check(tmp_path: Path, auditor: str, why: str) -> None:
    for options, status in (((), 2), (("--if-possible",), 0)):
        ended = audit(tmp_path, auditor, *options)
        assert ended.returncode == status
        assert why in ended.stderr


def test_make_check_installs_the_auditor_before_it_audits() -> None:
    assert [need for need in PROJECT["dependency-groups"]["audit"] if need.startswith("pip-audit>=")]
    (lines,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert 0 < lines.index("--group audit") < lines.index("tools/audit --if-possible")


def test_the_wheel_needs_four_small_libraries_and_no_more(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = wheel.namelist()
        metadata = Parser().parsestr(wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode())
    needed = metadata.get_all("Requires-Dist") or []
    assert {re.split(r"[<>=; ]", need)[0] for need in needed if "extra ==" not in need} == RUNTIME
    assert set(metadata.get_all("Provides-Extra") or []) == {"cli", "embedded", "fast", "otel", "prometheus", "reload"}
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"pychasqui"}
    assert "pychasqui/py.typed" in names
    assert "pychasqui/_redis/lua/add.lua" in names


def test_no_module_imports_a_library_that_is_not_declared() -> None:
    allowed = RUNTIME | {
        "ulid_transform",
        "pychasqui",
        "opentelemetry",
        "prometheus_client",
        "rich",
        "uvloop",
        "watchfiles",
    }
    allowed |= {"pydantic", "pydantic_core", "typing_extensions"}  # imported only if the program has imported pydantic
    allowed |= {"asgiref", "django"}  # by the backend that Django loads
    allowed |= {"sentry_sdk"}  # by the integration of that name
    allowed |= {"pytest"}  # by the plugin that pytest loads
    for path in (ROOT / "src").rglob("*.py"):
        found = set(re.findall(r"^\s*(?:from|import) ([a-z_]\w*)", path.read_text(), re.MULTILINE))
        assert found <= allowed | sys.stdlib_module_names, path


def test_the_source_archive_holds_the_pages_about_the_project(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "Makefile",
        "tools/pythons",
    }
    assert not [name for name in names if ".venv" in name or "__pycache__" in name or name.startswith(".servers")]


def test_the_classifiers_name_no_python_that_the_suite_is_not_run_on() -> None:
    versions = re.search(r"^VERSIONS = \((.*)\)$", (ROOT / "tools" / "pythons").read_text(), re.MULTILINE)
    assert versions is not None
    tested = set(re.findall(r'"([\d.]+)"', versions[1]))
    named = {one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert named
    assert named <= tested


def test_tests_and_tools_are_groups_and_not_extras() -> None:
    assert {"test", "dev"} <= PROJECT["dependency-groups"].keys()
    assert not {"test", "dev"} & PROJECT["project"]["optional-dependencies"].keys()


def test_every_action_of_a_workflow_is_pinned_by_its_hash() -> None:
    """There is no workflow today, only .ci/run. A workflow must name a commit, not a tag that can be moved."""
    for workflow in (ROOT / ".github" / "workflows").glob("*.y*ml"):
        for action in re.findall(r"uses:\s*(\S+)", workflow.read_text()):
            assert action.startswith("./") or re.fullmatch(r"\S+@[0-9a-f]{40}", action), f"{workflow.name}: {action}"
