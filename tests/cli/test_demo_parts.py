"""The demo's own arithmetic: it must notice a job that is missing or that ran twice."""

from __future__ import annotations

import pytest

from pychasqui.cli.demo.messages import Plan, Progress, Scene, Verdict, Waits, read_plan, read_report, write
from pychasqui.cli.demo.play import Findings
from pychasqui.cli.demo.report import refuse_flaws, table
from pychasqui.cli.demo.screen import LineScreen
from pychasqui.cli.demo.tally import Tally, spread
from pychasqui.cli.exits import CommandFailure

PLAN = Plan("redis://x", "q", burst=3, trickle=2)
WAITS = Waits(p50_ms=0.1234, p99_ms=1234.5)
FINE = Verdict(missing=0, repeated=0, burst=WAITS, trickle=WAITS)


def test_a_tally_in_which_each_job_ran_once_finds_nothing_wrong():
    tally = Tally(PLAN)
    for number in range(5):
        tally.note(number, added_at=1_000_000, now=3_000_000 + number * 1_000_000)
    assert tally.judge() == Verdict(0, 0, burst=Waits(3.0, 4.0), trickle=Waits(5.0, 6.0))
    assert tally.progress() == Progress(5, 0.004)


def test_a_job_that_did_not_run_is_missing():
    tally = Tally(PLAN)
    for number in (0, 1, 3, 4):
        tally.note(number, 1, 2)
    assert tally.judge().missing == 1


def test_a_job_that_ran_twice_is_repeated_and_counts_once():
    tally = Tally(PLAN)
    for number in (0, 1, 2, 3, 4, 2):
        tally.note(number, 1, 2)
    assert tally.judge().repeated == 1
    assert tally.judge().missing == 0
    assert tally.count == 5


def test_a_percentile_is_a_value_that_was_measured():
    assert spread(range(1_000_000, 101_000_000, 1_000_000)) == Waits(p50_ms=50.0, p99_ms=99.0)
    assert spread([7_000_000]) == Waits(p50_ms=7.0, p99_ms=7.0)


@pytest.mark.parametrize(
    ("missing", "repeated", "message"),
    (
        (1, 0, "of 5 jobs 1 did not run and 0 ran more than once"),
        (0, 2, "of 5 jobs 0 did not run and 2 ran more than once"),
    ),
)
def test_a_flaw_fails_the_demo(missing: int, repeated: int, message: str):
    verdict = Verdict(missing, repeated, WAITS, WAITS)
    with pytest.raises(CommandFailure, match=message):
        refuse_flaws(Findings(PLAN, Progress(3, 1), Progress(3, 1), verdict, []))


def test_a_scene_that_goes_wrong_fails_the_demo():
    scenes = [Scene("one", "fine", is_well=True), Scene("two", "TimeoutError: ", is_well=False)]
    with pytest.raises(CommandFailure, match="these scenes went wrong: two"):
        refuse_flaws(Findings(PLAN, Progress(3, 1), Progress(3, 1), FINE, scenes))


def test_the_table_has_a_row_for_each_thing_measured():
    findings = Findings(PLAN, Progress(3, 0.001), Progress(3, 0.002), FINE, [])
    assert table(findings) == [
        ("burst, added", "3", "3,000", "", ""),
        ("burst, done", "3", "1,500", "0.12 ms", "1.23 s"),
        ("one by one, idle queue", "2", "", "0.12 ms", "1.23 s"),
    ]


@pytest.mark.parametrize("message", (Progress(3, 0.5), Scene("one", "fine", is_well=True), FINE))
def test_a_report_arrives_as_it_was_sent(message: Progress | Scene | Verdict):
    assert read_report(write(message)) == message


def test_a_plan_arrives_as_it_was_sent():
    assert read_plan(write(PLAN)) == PLAN


def test_a_line_is_printed_when_all_bars_of_an_act_are_full(capsys: pytest.CaptureFixture[str]):
    with LineScreen() as screen:
        added, done = screen.bar("added", 2), screen.bar("done", 2, has_rate=False)
        added.show(Progress(2, 0.5))
        assert capsys.readouterr().err == ""
        done.show(Progress(2))
        done.show(Progress(2))
        assert capsys.readouterr().err == "added 2 of 2 (4/s), done 2 of 2\n"
        screen.bar("next", 1).show(Progress(1))
        assert capsys.readouterr().err == "next 1 of 1\n"
