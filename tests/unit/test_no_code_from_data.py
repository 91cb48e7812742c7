"""S1: no module of the package can turn data from Redis into code.

The source is read, not run: no module that revives objects, no eval, no import by a name that is not written down,
except where the command line or the program names the user's own modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pychasqui
from pychasqui.cli.main import COMMANDS
from tests.support.cases import in_one_test

PACKAGE = Path(pychasqui.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MODULES = {
    *("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib"),
    *("builtins", "code", "codeop", "imp", "runpy", "zipimport"),
}
BUILTINS = {"eval", "exec", "compile", "__import__", "__builtins__", "__loader__"}
# Under any module name: no attribute of ours has one of these names.
NAMES = {
    *("import_module", "exec_module", "load_module", "module_from_spec", "spec_from_file_location", "resolve_name"),
    *("SourceFileLoader", "SourcelessFileLoader", "entry_points"),
    *("unsafe_load", "full_load", "UnsafeLoader", "FullLoader"),
}
OF_MODULES = {("yaml", "load"), ("yaml", "load_all"), ("pydoc", "locate"), ("importlib", "__import__")}

ALLOWED = {
    (
        "cli/worker_targets.py",
        "import_module_of_user_or_fail",
        "import_module",
    ),  # the user's module on the command line
    ("app.py", "App.load_parts", "import_module"),  # the user's modules, named in the program: App(modules=[...])
    ("cli/main.py", "LazyGroup.get_command", "import_module"),  # our own commands; see the last test
    ("__init__.py", "__getattr__", "import_module"),  # our own modules, by the names in a table
    ("tracing.py", "find_tracing", "import_module"),  # our own integration, by a name that is written there
    (
        "integrations/django/declared_tasks.py",
        "import_task_modules",
        "import_module",
    ),  # the project's, named in its settings
    ("integrations/django/framework.py", "", "import_module"),  # Django's own modules, by names that are written there
    ("integrations/django/framework.py", "choose_tasks_package", "find_spec"),
}


class Use(NamedTuple):
    file: str
    within: str
    what: str


class Search(ast.NodeVisitor):
    """Everything forbidden in one file, with the function that it stands in."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Use] = []
        self._within: list[str] = []
        self._aliases: dict[str, str] = {}  # what a module is called here -> what it is

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            self._aliases[alias.asname or root] = alias.name if alias.asname else root
            if root in MODULES:
                self._note(root)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "" if node.level else node.module or ""
        if module.partition(".")[0] in MODULES:
            self._note(module.partition(".")[0])
        for alias in node.names:
            self._check_attribute(module, alias.name)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in BUILTINS:
            self._note(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value.id if isinstance(node.value, ast.Name) else ""
        self._check_attribute(self._aliases.get(base, base), node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "find_spec" and not (node.args and isinstance(node.args[0], ast.Constant)):
            self._note("find_spec")  # it imports the parents of what it looks for
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_inside(node)

    def _visit_inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    def _check_attribute(self, module: str, name: str) -> None:
        if name in NAMES or (module, name) in OF_MODULES:
            self._note(name)

    def _note(self, what: str) -> None:
        self.found.append(Use(self.file, ".".join(self._within), what))


def uses_in(source: str, file: str = "") -> list[Use]:
    search = Search(file)
    search.visit(ast.parse(source))
    return search.found


def uses_in_package() -> Iterator[Use]:
    for path in FILES:
        yield from uses_in(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())


def test_no_module_turns_data_into_code() -> None:
    assert {path.name for path in FILES} >= {"envelope.py", "worker.py", "dlq.py", "reader.py", "broker.py"}
    assert [use for use in uses_in_package() if use not in ALLOWED] == []


def test_no_allowed_exception_is_unused() -> None:
    assert set(uses_in_package()) >= ALLOWED


def test_commands_are_imported_from_the_package_alone() -> None:
    modules = [entry.module for entry in COMMANDS.values()]
    assert all(module.startswith("pychasqui.cli.") for module in modules)


@in_one_test(
    "source",
    (
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import marshal, json",
        "import shelve",
        "import os\ndef f():\n    import cloudpickle.cloudpickle",
        "eval(data)",
        "exec(data)",
        "run = eval",
        "map(exec, lines)",
        "compile(data, '', 'exec')",
        "__import__(name)",
        "__builtins__['eval'](data)",
        "import builtins",
        "import yaml\nyaml.load(data)",
        "import yaml as y\ny.load(data)",
        "from yaml import load",
        "import yaml\nyaml.unsafe_load(data)",
        "import importlib\nimportlib.import_module(name)",
        "import importlib as i\ni.import_module(name)",
        "from importlib import import_module as get",
        "import importlib\nload = importlib.import_module",
        "import importlib\nimportlib.__import__(name)",
        "import importlib.util\nimportlib.util.spec_from_file_location('x', path)",
        "from importlib.util import find_spec\nfind_spec(name)",
        "from importlib.metadata import entry_points",
        "import pkgutil\npkgutil.resolve_name(name)",
        "from pydoc import locate",
        "import runpy",
        "async def f():\n    return [eval(x) for x in await g()]",
        "class C:\n    loads = staticmethod(eval)",
    ),
)
def test_source_that_could_turn_data_into_code_is_found(source: str) -> None:
    assert uses_in(source)


@in_one_test(
    "source",
    (
        "import json\njson.loads(data)",
        "import re\nre.compile('x')",
        "client.eval(script, 1, key)",
        "import asyncio\nasyncio.create_subprocess_exec('ls')",
        "from importlib.resources import files",
        "from importlib.metadata import version",
        "from importlib.util import find_spec\nfind_spec('uvloop')",
        "'eval(pickle)'  # exec",
        "from .yaml import load",
        "import yaml\nyaml.safe_load(text)",
    ),
)
def test_harmless_source_is_not_reported(source: str) -> None:
    assert uses_in(source) == []


def test_a_use_is_named_by_the_function_it_stands_in() -> None:
    source = "class Reader:\n    async def read(self):\n        def inner():\n            eval('1')"
    assert uses_in(source, "reader.py") == [Use("reader.py", "Reader.read.inner", "eval")]
