"""Makes mutants of Lua text: each has one token, clause or statement changed. Knows tokens, not meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"(?P<skip>--[^\n]*|\s+)"
    r"|(?P<string>'(?:\\.|[^'\\])*')"
    r"|(?P<number>0x[0-9a-fA-F]+|\d+(?:e\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\]:,.])"
)
_FLIPS = dict(
    pair.split(" to ")
    for pair in (
        *("== to ~=", "~= to ==", "< to <=,>=", "<= to <,>", "> to >=,<=", ">= to >,<", "+ to -", "- to +"),
        *("and to or", "or to and", "not to ", "true to false", "false to true"),
        *("max to min", "min to max", "floor to ceil", "ceil to floor"),
    )
)
_PLAIN_SEARCH = re.compile(r", 1, true\)")  # of string.find: any start up to the text will do
_OPENING, _CLOSING = {"(", "{", "["}, {")", "}", "]"}
_KEYWORDS = {"and", "or", "then", "do", "end", "else", "elseif", "return", "local", "if", "for", "while", "break"}
_KEYWORDS |= {"function", "repeat", "until", "not", "in", "nil"}
_ENDS_CLAUSE = (_KEYWORDS | _CLOSING | {","}) - {"not", "nil"}


def _blank(found: re.Match[str]) -> str:
    return " " * (len(found[0]) - 1) + ")"


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class Mutant(NamedTuple):
    """A change of one file: the text from `start` to `end` becomes `new`."""

    file: str
    start: int
    end: int
    new: str
    line: str  # the line that it changes, for people and for the list of equivalents
    number: int

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]

    def change(self, source: str) -> str:
        return f"{source[self.start : self.end]} -> {self.new}"


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Every mutant of this file, in the order of its text, none twice."""
    tokens = tokens_of(_PLAIN_SEARCH.sub(_blank, source))
    changes = {
        change
        for rule in (_flips, _calls, _numbers, _strings, _conditions, _clauses, _swaps)
        for change in rule(tokens)
    }
    changes |= set(_statements(tokens, source))
    return [
        Mutant(file, start, end, new, _line(source, start), source.count("\n", 0, start) + 1)
        for start, end, new in sorted(changes)
    ]


def tokens_of(source: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        assert found, f"no Lua token at {source[at : at + 20]!r}"
        assert found.lastgroup is not None
        if found.lastgroup != "skip":
            tokens.append(Token(found.lastgroup, found[0], at, found.end()))
        at = found.end()
    return tokens


Change = tuple[int, int, str]


def _flips(tokens: list[Token]) -> Iterator[Change]:
    for token in tokens:
        if token.text in _FLIPS:
            for new in _FLIPS[token.text].split(","):
                yield token.start, token.end, new


def _calls(tokens: list[Token]) -> Iterator[Change]:
    """An error that a script passes over ends it. The other way round nothing shows: what may fail is tried before."""
    for at, token in enumerate(tokens[:-1]):
        if token.text == "pcall" and tokens[at + 1].text == "(":
            is_of_redis = at > 0 and tokens[at - 1].text == "."
            yield token.start, token.end, "call" if is_of_redis else "redis.call"


def _numbers(tokens: list[Token]) -> Iterator[Change]:
    for token in tokens:
        if token.kind == "number":
            yield token.start, token.end, "0" if "e" in token.text else str(int(token.text, 0) + 1)


def _strings(tokens: list[Token]) -> Iterator[Change]:
    """Empty, but for the names of commands."""
    for before, token in pairwise(tokens):
        if token.kind == "string" and token.text != "''" and before.text != "(":
            yield token.start, token.end, "''"


def _conditions(tokens: list[Token]) -> Iterator[Change]:
    """A condition always holds, or never."""
    for at, token in enumerate(tokens):
        if token.text in ("if", "elseif", "while"):
            end = next(i for i in range(at, len(tokens)) if tokens[i].text in ("then", "do"))
            always = () if token.text == "while" else ("true",)
            for new in (*always, "false"):
                yield tokens[at + 1].start, tokens[end - 1].end, new


def _clauses(tokens: list[Token]) -> Iterator[Change]:
    """`a and b` becomes `a`."""
    for at, token in enumerate(tokens):
        if token.text in ("and", "or"):
            last = at
            depth = 0
            for i in range(at + 1, len(tokens)):
                if depth == 0 and i > at + 1 and (tokens[i].text in _ENDS_CLAUSE or _begins_statement(tokens, i)):
                    break
                depth += (tokens[i].text in _OPENING) - (tokens[i].text in _CLOSING)
                last = i
            yield token.start, tokens[last].end, ""


def _begins_statement(tokens: list[Token], at: int) -> bool:
    """Two operands without an operator between them are of two statements."""
    before, token = tokens[at - 1], tokens[at]
    is_word = before.kind in ("name", "number", "string") and before.text not in _KEYWORDS
    return (is_word or before.text in _CLOSING) and token.kind == "name"


def _swaps(tokens: list[Token]) -> Iterator[Change]:
    """Two plain arguments that stand side by side."""
    open_at: list[int] = []
    for at, token in enumerate(tokens):
        if token.text in _OPENING:
            open_at.append(at)
        elif token.text in _CLOSING:
            open_at.pop()
        elif token.text == "," and open_at and tokens[open_at[-1]].text != "[":
            opened = open_at[-1]
            is_definition = tokens[opened - 1].text == "function" or tokens[opened - 2].text == "function"
            left, right = tokens[at - 1], tokens[at + 1]
            alone = tokens[at - 2].text in ("(", "{", ",") and tokens[at + 2].text in (")", "}", ",")
            is_command = tokens[at - 2].text == "(" and left.kind == "string"
            if alone and not is_definition and not is_command and left.text != right.text and left.text not in _CLOSING:
                yield left.start, right.end, f"{right.text}, {left.text}"


def _statements(tokens: list[Token], source: str) -> Iterator[Change]:
    """A statement is left out that begins a line and is neither a block nor a declaration."""
    for at, token in enumerate(tokens):
        is_first = not source[source.rfind("\n", 0, token.start) + 1 : token.start].strip()
        is_statement = token.kind == "name" and (token.text not in _KEYWORDS or token.text in ("return", "break"))
        if not is_first or not is_statement:
            continue
        depth, end = 0, token.end
        for i in range(at, len(tokens)):
            if i > at and depth == 0 and "\n" in source[tokens[i - 1].end : tokens[i].start]:
                break
            depth += (tokens[i].text in _OPENING) - (tokens[i].text in _CLOSING)
            end = tokens[i].end
        if source[token.start : end] != "return nil":
            yield token.start, end, ""


def _line(source: str, at: int) -> str:
    end = source.find("\n", at)
    return source[source.rfind("\n", 0, at) + 1 : len(source) if end < 0 else end].strip()
