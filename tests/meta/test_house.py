"""The code keeps the rules of the house that a program can check."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/pychasqui"


@cache
def trees() -> dict[str, ast.Module]:
    """Every file of the package, parsed. Not at import, which every process of a test run does."""
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


# Values that move from part to part and are filled in on their way, and objects of other libraries.
FILLED_IN = {
    "job": "a Delivery, which decoder, lanes, acker and event writer fill in; a Job that was just added",
    "delivery": "a Delivery",
    "encoded": "jobs on their way to Redis",
    "context": "an SSLContext",
    "record": "a LogRecord",
    "error": "an exception that gets its cause",
    "__init__": "a function that gets its signature",
}


def foreign_assignments(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Each `x.y = ...` where x is neither self nor cls, and no class of the same file has an attribute y of its own."""
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    own = {node.attr for node in stored if is_own(node)}
    own |= {
        field.target.id
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for field in kind.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    yield from (node for node in stored if not is_own(node) and node.attr not in own)


def is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_attribute_is_set_from_another_file() -> None:
    found = [
        f"{file}:{node.lineno} {ast.unparse(node)}"
        for file, tree in trees().items()
        for node in foreign_assignments(tree)
        if ast.unparse(node.value) not in FILLED_IN
    ]
    assert found == [], "a constructor gets what its object needs, and a method changes it"


def test_the_check_sees_an_assignment_to_another_part() -> None:
    tree = ast.parse(
        "class A:\n    def f(self, b):\n        self.b = b\n        b.on_death = self.die\n        b.b = 1\n"
    )
    assert [ast.unparse(node) for node in foreign_assignments(tree)] == ["b.on_death"]


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def methods_by_class() -> dict[str, set[str]]:
    """The methods and attributes of each class, with those of its bases."""
    classes = {one.name: one for tree in trees().values() for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}

    def find(name: str) -> set[str]:
        if name not in classes:
            return set()
        own = {getattr(one, "name", "") for one in classes[name].body}
        own |= {one.attr for one in ast.walk(classes[name]) if isinstance(one, ast.Attribute) and is_own(one)}
        return own.union(*(find(ast.unparse(base)) for base in classes[name].bases))

    return {name: find(name) for name in classes}


def test_a_class_whose_docstring_begins_with_a_method_has_it() -> None:
    methods = methods_by_class()
    found = [
        f"{file} {one.name}: {first[1]}"
        for file, tree in trees().items()
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and (first := re.match(r"(\w+)\(", ast.get_docstring(one) or ""))
        if first[1] not in methods[one.name]
    ]
    assert len(methods) > 300
    assert found == []


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Each module of the package that is imported and has a name with an underscore, but for the version's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            names = names if node.level or (node.module or "").split(".")[0] == "pychasqui" else []
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "pychasqui"]
        else:
            continue
        yield from (name for name in names if any(re.match(r"_(?!_|version$)", part) for part in name.split(".")))


def test_the_command_line_imports_no_private_module() -> None:
    files = {file: tree for file, tree in trees().items() if file.startswith("cli/")}
    assert len(files) >= 10
    assert [f"{file}: {name}" for file, tree in files.items() for name in private_imports(tree)] == []


def test_the_check_sees_the_import_of_a_private_module() -> None:
    tree = ast.parse(
        "from __future__ import annotations\nimport _thread\nimport pychasqui._core.ids\nfrom .._redis import keys\n"
        "from ... import _wire, Queue, __version__\nfrom .._version import __version__\n"
        "from pychasqui._http.server import A\n"
    )
    assert list(private_imports(tree)) == ["pychasqui._core.ids", "_redis.keys", "._wire", "pychasqui._http.server.A"]


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Each `x._y` where x is neither self nor cls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr) and not is_own(node):
            yield ast.unparse(node)


def test_the_command_line_reads_no_private_attribute() -> None:
    files = {file: tree for file, tree in trees().items() if file.startswith("cli/")}
    assert [f"{file}: {name}" for file, tree in files.items() for name in private_attributes(tree)] == []


def test_the_check_sees_the_read_of_a_private_attribute() -> None:
    tree = ast.parse("class A:\n    def f(self, b):\n        self._b = b\n        return b._c, b.d()._e, b.__doc__\n")
    assert sorted(private_attributes(tree)) == ["b._c", "b.d()._e"]


TESTS = Path(__file__).parents[1]
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
NO_SUBJECT = re.compile(
    r"test_(it|they|them|what|who|whose|that|those|nobody|somebody|nothing|something|everything|everybody|whatever|whoever"
    r"|whichever|of|to|so|nor|also|but|and|there|if(?!_exists)|while|when|after|before|without|within|with|otherwise|however)_"
)
NO_WORD = re.compile(r"_(anew|whoever|whatever|nobody|somebody|anybody|told|tells?|markers?)(_|$)")


def test_the_name_of_a_test_has_a_noun_as_its_subject() -> None:
    names = [(path, name) for path in sorted(TESTS.rglob("test_*.py")) for name in TEST_NAME.findall(path.read_text())]
    assert len(names) > 2000
    found = [
        f"{path.relative_to(TESTS)}::{name}" for path, name in names if NO_SUBJECT.match(name) or NO_WORD.search(name)
    ]
    assert found == []


ROOT = Path(__file__).parents[2]
FORBIDDEN = re.compile(r"\b(anew|whoever|thereof|at\s+the\s+most|so\s+many|farewell)\b", re.IGNORECASE)
PROSE = (
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
)
PROSE_KINDS = (".py", ".lua", ".md", ".txt")


def prose_files() -> Iterator[Path]:
    for name in PROSE:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix in PROSE_KINDS and file != Path(__file__):
                yield file


def test_forbidden_words_do_not_occur() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1} {match[0]!r}"
        for file in prose_files()
        for text in [file.read_text()]
        for match in FORBIDDEN.finditer(text)
    ]
    assert found == []


def test_the_check_of_words_reads_every_kind_of_file() -> None:
    assert {file.suffix for file in prose_files()} >= {".py", ".lua", ".md"}
    assert len(FORBIDDEN.findall("Anew, so\n    many")) == 2


# Words that said nothing to a stranger, or several things, and have been replaced: see the glossary.
WORDS_NOT_IN_NAMES = {
    "tell",
    "tells",
    "told",
    "desk",
    "roll",
    "vitals",
    "remedies",
    "caretaker",
    "keeper",
    "verdict",
    "announcer",
    "terms",
    "manager",
    "misc",
    "helper",
    "helpers",
    "util",
    "utils",
}


def test_replaced_words_do_not_occur_in_names() -> None:
    names = {
        (file, node.name)
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert {(file, name) for file, name in names if words_of_name(name) & WORDS_NOT_IN_NAMES} == set()


def words_of_name(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}


def test_the_words_of_a_name_are_found_in_both_spellings() -> None:
    assert words_of_name("_advance_and_tell") | words_of_name("JobKeeper") == {
        "advance",
        "and",
        "tell",
        "job",
        "keeper",
    }


MAX_FILE_LINES = 350
MAX_CONSTRUCTOR_PARAMETERS = 9
MAX_FUNCTION_LINES = 60
MAX_LUA_LINES = 90
LONG_FUNCTIONS = {
    # It makes every part of a worker in the order in which they need each other: cut up, the order would be hidden.
    "_worker/wiring.py build_components",
}


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


def function_lengths() -> Iterator[tuple[str, int]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield f"{file} {node.name}", node.end_lineno - node.lineno + 1


def test_files_are_short() -> None:
    lengths = {path.relative_to(SOURCE).as_posix(): line_count(path) for path in sorted(SOURCE.rglob("*.py"))}
    assert {file: lines for file, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    assert {name for name, lines in function_lengths() if lines > MAX_FUNCTION_LINES} == LONG_FUNCTIONS


def test_constructors_are_narrow() -> None:
    widths = {
        f"{file} {node.lineno}": len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    }
    assert {place: width for place, width in widths.items() if width > MAX_CONSTRUCTOR_PARAMETERS} == {}


def test_scripts_are_short() -> None:
    lengths = {path.relative_to(SOURCE).as_posix(): line_count(path) for path in sorted(SOURCE.rglob("*.lua"))}
    assert lengths
    assert {file: lines for file, lines in lengths.items() if lines > MAX_LUA_LINES} == {}
