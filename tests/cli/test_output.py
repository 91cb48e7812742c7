"""Tables on a terminal, lines with tabs in a pipe, JSON for programs; text of others is escaped in all of them."""

from __future__ import annotations

import io
import json
import math
from contextlib import redirect_stdout, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from pychasqui.cli.options import SPAN
from pychasqui.cli.output import Output
from pychasqui.cli.tables import Column, count_cells, cut_to_cells, format_for_pipe, format_for_terminal
from pychasqui.cli.values import (
    Kind,
    encode_compact_json,
    format_count,
    format_iso_time,
    format_span,
    format_value_for_pipe,
    format_value_for_terminal,
    make_iso_and_ms_fields,
    to_jsonable,
)
from tests.cli.conftest import COMMAND, Finished
from tests.cli.terminals import WITHOUT_RICH, on_terminal, plain
from tests.support.cases import in_one_test

NOW_MS = 1_700_000_000_000
COLUMNS = (
    Column("name", "queue", shrinks=True),
    Column("waiting", "waiting", Kind.COUNT),
    Column("at", "at", Kind.TIME),
)
EVIL = "a\x1b[2Jb\nc\u202ed"


def written(output: Output, act: Any) -> str:
    with redirect_stdout(io.StringIO()) as out:
        act(output)
    return out.getvalue()


@in_one_test(
    ("value", "kind", "shown", "piped"),
    (
        (1_234_567, Kind.COUNT, "1,234,567", "1234567"),
        (3.26, Kind.RATE, "3.3", "3.3"),
        (12_345.6, Kind.RATE, "12,346", "12345.6"),
        (NOW_MS - 200_000, Kind.TIME, "3 m 20 s ago", "2023-11-14T22:10:00.000Z"),
        (NOW_MS + 5000, Kind.TIME, "in 5 s", "2023-11-14T22:13:25.000Z"),
        (NOW_MS + 10, Kind.TIME, "now", "2023-11-14T22:13:20.010Z"),
        (10**20, Kind.TIME, "in 1157407387731 d 11 h", "-"),
        (90_061_000, Kind.SPAN, "1 d 1 h", "90061.000s"),
        (3_600_000, Kind.SPAN, "1 h", "3600.000s"),
        (250, Kind.SPAN, "250 ms", "0.250s"),
        (None, Kind.COUNT, "-", "-"),
        (None, Kind.DATA, "-", "-"),
        (True, Kind.TEXT, "true", "true"),
        ({"a": [1, b"x"]}, Kind.DATA, '{"a":[1,"eA=="]}', '{"a":[1,"eA=="]}'),
        (EVIL, Kind.TEXT, r"a\x1b[2Jb\nc\u202ed", r"a\x1b[2Jb\nc\u202ed"),
    ),
)
def test_a_value_is_written_for_people_and_for_programs(value: Any, kind: Kind, shown: str, piped: str) -> None:
    assert format_value_for_terminal(value, kind, NOW_MS) == shown
    assert format_value_for_pipe(value, kind) == piped


def test_a_noun_follows_its_count() -> None:
    assert [format_count(count, "job") for count in (0, 1, 2, 2500)] == ["0 jobs", "1 job", "2 jobs", "2,500 jobs"]
    assert [format_count(count, "entry", has_commas=False) for count in (1, 2500)] == ["1 entry", "2500 entries"]


def test_a_span_has_two_units_at_most() -> None:
    assert [format_span(ms) for ms in (0, 999, 1000, 61_000, 3_601_000, 86_400_000)] == [
        *("0 ms", "999 ms", "1 s", "1 m 1 s", "1 h", "1 d"),
    ]


def test_long_text_is_cut_on_a_terminal_only() -> None:
    assert len(format_value_for_terminal("x" * 1000, Kind.TEXT, NOW_MS)) == 300
    assert format_value_for_pipe("x" * 1000, Kind.TEXT) == "x" * 1000


def test_data_that_json_does_not_have_is_replaced() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    data = {1: math.nan, "t": (moment, {2}), "o": object}
    assert to_jsonable(data) == {"1": None, "t": ["2026-01-02T00:00:00+00:00", [2]], "o": repr(object)}
    assert encode_compact_json("é") == '"é"'


def test_a_time_in_json_is_there_as_text_and_as_a_number() -> None:
    assert make_iso_and_ms_fields(due_at=0, gone_at=None) == {
        "due_at": "1970-01-01T00:00:00.000Z",
        "due_at_ms": 0,
        "gone_at": None,
        "gone_at_ms": None,
    }
    assert format_iso_time(-1) == "1969-12-31T23:59:59.999Z"


def test_lines_for_a_pipe_have_one_tab_between_values() -> None:
    records: list[dict[str, Any]] = [{"name": EVIL, "waiting": 5, "at": 0}, {"name": "b"}]
    assert format_for_pipe(COLUMNS, records) == [
        "queue\twaiting\tat",
        "a\\x1b[2Jb\\nc\\u202ed\t5\t1970-01-01T00:00:00.000Z",
        "b\t-\t-",
    ]


@pytest.mark.parametrize("has_color", (False, True))
@pytest.mark.parametrize("width", (20, 30, 80, 200))
@pytest.mark.parametrize("name", ("short", "x" * 500, "汉" * 100, EVIL * 20))
def test_a_table_fits_its_width_with_one_line_a_row(has_color: bool, width: int, name: str) -> None:
    if has_color:
        pytest.importorskip("rich")
    records = [{"name": name, "waiting": 1_000_000, "at": NOW_MS}, {"name": "b", "waiting": 0, "at": None}]
    text = format_for_terminal(COLUMNS, records, width=width, has_color=has_color, now_ms=NOW_MS)
    lines = plain(text).splitlines()
    assert len(lines) == 3
    assert max(count_cells(line) for line in lines) <= width
    assert ("\x1b" in text) == has_color
    assert lines[0].split() == ["queue", "waiting", "at"] or width == 20


def test_counts_are_aligned_to_the_right() -> None:
    records = [{"name": "a", "waiting": 5, "at": NOW_MS}, {"name": "b", "waiting": 1234, "at": NOW_MS}]
    text = format_for_terminal(COLUMNS, records, width=80, has_color=False, now_ms=NOW_MS)
    assert text.splitlines() == ["queue  waiting  at", "a            5  now", "b        1,234  now"]


@pytest.mark.parametrize(
    ("width", "row"),
    (
        (27, "long-name        7  7 s ago"),
        (25, "long-name       7 7 s ago"),
        (24, "long-na…       7 7 s ago"),
    ),
)
@pytest.mark.parametrize("has_color", (True, False))
def test_columns_move_together_before_a_value_is_cut(width: int, row: str, has_color: bool) -> None:
    if has_color:
        pytest.importorskip("rich")
    records = [{"name": "long-name", "waiting": 7, "at": NOW_MS - 7000}]
    text = format_for_terminal(COLUMNS, records, width=width, has_color=has_color, now_ms=NOW_MS)
    assert plain(text).splitlines()[1] == row


def test_a_cut_is_shown() -> None:
    assert (cut_to_cells("abcdef", 4), cut_to_cells("abcd", 4), cut_to_cells("汉汉汉", 4)) == ("abc…", "abcd", "汉…")


def test_json_has_a_schema_and_only_ascii() -> None:
    output = Output(is_json=True, is_terminal=True, has_color=True)
    text = written(
        output, lambda out: out.print_table_or_json("queues", COLUMNS, [{"name": "\x9b é", "waiting": 1}], total=1)
    )
    assert text.isascii()
    assert json.loads(text) == {"schema": 1, "queues": [{"name": "\x9b é", "waiting": 1}], "total": 1}


def test_ndjson_has_a_record_a_line_and_each_has_a_schema() -> None:
    output = Output(is_json=False, is_ndjson=True, is_terminal=True, has_color=True)
    records = [{"name": "a", "waiting": 1}, {"name": "b", "waiting": 2}]
    lines = written(output, lambda out: out.print_table_or_json("queues", COLUMNS, records, total=2)).splitlines()
    assert [json.loads(line) for line in lines] == [{"schema": 1, **record} for record in records]
    data = {"data": [{"name": "a"}, {"name": "b"}]}
    assert json.loads(written(output, lambda out: out.print_facts_or_json(COLUMNS, data))) == {"schema": 1, **data}


def test_facts_keep_the_lines_of_a_text_and_escape_the_rest() -> None:
    columns = (
        Column("id", "id"),
        Column("trace", "traceback"),
        Column("at", "due", Kind.TIME),
        Column("d", "data", Kind.DATA),
    )
    record = {"id": "x", "trace": "one\n  two\x1b[2J", "at": 0, "d": {"a": 1}}
    shown = written(
        Output(is_json=False, is_terminal=True, has_color=False), lambda out: out.print_facts_or_json(columns, record)
    )
    lines = shown.splitlines()
    assert lines[:3] == ["id         x", "traceback  one", "             two\\x1b[2J"]
    assert lines[3].startswith("due        1970-01-01T00:00:00.000Z (")
    assert lines[4:] == ["data       {", '             "a": 1', "           }"]
    piped = written(
        Output(is_json=False, is_terminal=False, has_color=False), lambda out: out.print_facts_or_json(columns, record)
    )
    assert piped.splitlines()[1] == "traceback\tone\\n  two\\x1b[2J"


def test_an_empty_table_has_its_titles_in_a_pipe_and_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False, is_terminal=False, has_color=False).print_table_or_json(
        "queues", COLUMNS, [], empty="no queues"
    )
    Output(is_json=False, is_terminal=True, has_color=False).print_table_or_json(
        "queues", COLUMNS, [], empty="no queues"
    )
    out, err = capsys.readouterr()
    assert (out, err) == ("queue\twaiting\tat\n", "no queues\nno queues\n")


def test_a_terminal_that_cannot_redraw_gets_one_frame_below_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    output = Output(is_json=False, is_terminal=True, has_color=False)
    for number in (1, 2):
        with output.redraw_frame():
            output.print_text(f"frame {number}")
    assert capsys.readouterr().out == "frame 1\nframe 2\n"


def test_a_frame_replaces_the_one_before(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    output = Output(is_json=False, is_terminal=True, has_color=False)
    for number in (1, 2):
        with output.redraw_frame():
            output.print_text(f"frame {number}")
    assert capsys.readouterr().out == "\x1b[2J\x1b[Hframe 1\x1b[K\n\x1b[J\x1b[Hframe 2\x1b[K\n\x1b[J"


def test_a_frame_that_fails_keeps_back_nothing_that_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    output = Output(is_json=False, is_terminal=True, has_color=False)
    with suppress(ZeroDivisionError), output.redraw_frame():
        output.print_text("half")
        raise ZeroDivisionError
    output.print_text("after")
    assert capsys.readouterr().out == "after\n"


@pytest.mark.parametrize(
    ("text", "ms"), (("500ms", 500), ("30s", 30_000), ("2", 2000), ("1.5m", 90_000), ("7d", 604_800_000))
)
def test_a_span_of_time_has_a_unit(text: str, ms: int) -> None:
    assert SPAN.convert(text, None, None) == ms


@pytest.mark.parametrize("text", ("", "5 m", "-1s", "1e9", "nan", "9" * 400))
def test_a_span_of_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a span of time"):
        SPAN.convert(text, None, None)


def test_a_span_of_time_of_more_than_100_years_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'999999999999d' is more than 100 years"):
        SPAN.convert("999999999999d", None, None)


class TestTerminal:
    def test_a_terminal_gets_colours(self, tmp_path: Path) -> None:
        pytest.importorskip("rich")
        code, text = on_terminal("config", folder=tmp_path)
        assert code == 0
        assert "\x1b[1m" in text
        assert max(map(len, plain(text).splitlines())) <= 80

    @pytest.mark.parametrize("variable", ("NO_COLOR", "--no-color", "TERM", "without rich"))
    def test_colours_can_be_turned_off(self, tmp_path: Path, variable: str) -> None:
        more = ["--no-color"] if variable == "--no-color" else []
        command = WITHOUT_RICH if variable == "without rich" else COMMAND
        terminal = "dumb" if variable == "TERM" else "xterm"
        is_set = "1" if variable == "NO_COLOR" else ""
        code, text = on_terminal("config", *more, folder=tmp_path, command=command, TERM=terminal, NO_COLOR=is_set)
        assert code == 0
        assert "\x1b" not in text
        assert "redis_url " in text

    def test_columns_set_the_width(self, tmp_path: Path) -> None:
        _, text = on_terminal("config", folder=tmp_path, COLUMNS="40", CHASQUI_REDIS_URL=f"redis://{'h' * 60}")
        assert max(map(len, plain(text).splitlines())) == 40
        assert "…" in text

    def test_a_pipe_gets_no_colours_unless_they_are_forced(self, chasqui: Finished) -> None:
        assert "\x1b" not in chasqui("config").stdout
        pytest.importorskip("rich")
        assert "\x1b[1m" in chasqui("config", FORCE_COLOR="1").stdout
        assert "\x1b" not in chasqui("config", "--json", FORCE_COLOR="1").stdout

    def test_a_pipe_cuts_nothing(self, chasqui: Finished) -> None:
        host = "h" * 200
        assert f"redis://{host}:6379/0" in chasqui("config", COLUMNS="40", CHASQUI_REDIS_URL=f"redis://{host}").stdout
