"""`manage.py chasqui_worker`: becomes `chasqui worker`, with the project's queues and the same options."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError

TARGET = "pychasqui.integrations.django.workers:make_crew"


class Command(BaseCommand):
    help = "Runs the tasks of this project. Takes the options of `chasqui worker`, as --processes 4 or --queues mail."

    def run_from_argv(self, argv: list[str]) -> None:
        """Replaces this process: the worker has the signals, the exit code and the options of its own."""
        parser = CommandParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--settings")  # manage.py has handled both
        parser.add_argument("--pythonpath")
        known, given = parser.parse_known_args(argv[2:])
        try:
            self.check()
        except SystemCheckError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(1)
        if "DJANGO_SETTINGS_MODULE" not in os.environ:
            sys.stderr.write("chasqui_worker needs a settings module: set DJANGO_SETTINGS_MODULE\n")
            sys.exit(1)
        folders = sys.path[: 2 if known.pythonpath else 1]  # that of manage.py, behind the one that is given
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
        sys.stdout.flush()
        command = [sys.executable, "-m", "pychasqui.cli", "worker", *given, TARGET]
        os.execv(sys.executable, command)  # noqa: S606  no shell

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuses call_command(): the command line comes to run_from_argv() alone."""
        raise CommandError("chasqui_worker replaces its process: start it from the command line")
