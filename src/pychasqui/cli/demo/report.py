"""What the demo found out: a table on standard output, and whether every job ran exactly once."""

from __future__ import annotations

import click

from ..exits import CommandFailure
from ..terminal import data_console
from .play import Findings

HEADER = ("", "jobs", "jobs/s", "add to start, p50", "p99")
NOTE = "In the burst a job waits for those ahead of it; on the idle queue for nobody."

Row = tuple[str, str, str, str, str]


def print_report(findings: Findings) -> None:
    rows = table(findings)
    if _print_richly(rows):
        return
    widths = [max(len(row[column]) for row in (HEADER, *rows)) for column in range(len(HEADER))]
    for row in (HEADER, *rows):
        cells = [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        click.echo("   ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    click.echo(NOTE)


def table(findings: Findings) -> list[Row]:
    added, done, verdict = findings.added, findings.done, findings.verdict
    return [
        ("burst, added", f"{added.count:,}", _rate(added.rate), "", ""),
        ("burst, done", f"{done.count:,}", _rate(done.rate), _time(verdict.burst.p50_ms), _time(verdict.burst.p99_ms)),
        (
            "one by one, idle queue",
            f"{findings.plan.trickle:,}",
            "",
            _time(verdict.trickle.p50_ms),
            _time(verdict.trickle.p99_ms),
        ),
    ]


def refuse_flaws(findings: Findings) -> None:
    """Say that all is well, or fail."""
    total, verdict = findings.plan.total, findings.verdict
    if bad := [scene.title for scene in findings.scenes if not scene.is_well]:
        raise CommandFailure(f"these scenes went wrong: {', '.join(bad)}")
    if verdict.missing or verdict.repeated:
        raise CommandFailure(
            f"of {total:,} jobs {verdict.missing:,} did not run and {verdict.repeated:,} ran more than once"
        )
    click.echo(f"All {total:,} jobs ran, each exactly once.")


def _print_richly(rows: list[Row]) -> bool:
    """Unless there is no console, or it is too narrow: a table with holes says nothing."""
    console = data_console()
    if console is None:
        return False
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for position, title in enumerate(HEADER):
        table.add_column(title, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(max_width=1000)).maximum > console.width:
        return False
    console.print(table)
    console.print(NOTE, style="dim")
    return True


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second else ""


def _time(ms: float) -> str:
    """Three digits, in the unit that suits them."""
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"
