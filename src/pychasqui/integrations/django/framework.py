"""The tasks framework of this project: django.tasks, or the package django-tasks, which has the same names.

The package it is if the project has installed it as an app, or if Django has no tasks of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

BACKPORT = "django_tasks"


def choose_tasks_package() -> str:
    has_own = importlib.util.find_spec("django.tasks") is not None
    if has_own and BACKPORT not in settings.INSTALLED_APPS:
        return "django.tasks"
    if importlib.util.find_spec(BACKPORT) is None:
        raise ImproperlyConfigured("this Django has no tasks: install django-tasks, or Django 6.0 or newer")
    return BACKPORT


PACKAGE = choose_tasks_package()

_base: Any = importlib.import_module(f"{PACKAGE}.base")
_exceptions: Any = importlib.import_module(f"{PACKAGE}.exceptions")
_json: Any = importlib.import_module("django_tasks.utils" if PACKAGE == BACKPORT else "django.utils.json")

tasks: Any = importlib.import_module(PACKAGE)
signals: Any = importlib.import_module(f"{PACKAGE}.signals")
BaseTaskBackend: Any = importlib.import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
normalize_json: Any = _json.normalize_json
