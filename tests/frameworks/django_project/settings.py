"""Two backends: one that enqueues at once, one that enqueues when a transaction is committed."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

BACKEND = "pychasqui.integrations.django.ChasquiBackend"
SECRET_KEY = "of a test"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["tests.frameworks.django_project", "pychasqui.integrations.django"]
if os.environ.get("DJANGO_TASKS_BACKPORT"):
    INSTALLED_APPS.append("django_tasks")
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["TEST_DATABASE"]}}
PLAIN: dict[str, Any] = {
    "attempts": 3,
    "backoff": timedelta(milliseconds=20),
    "tasks": {
        "tests.frameworks.django_project.tasks.fail_once": {"attempts": 2},
        "tests.frameworks.django_project.tasks.die": {"attempts": 1},
        "tests.frameworks.django_project.tasks.sleep": {"attempts": 1},
    },
    "queues": {"slow": {"timeout": timedelta(milliseconds=300)}},
    "modules": ["tests.frameworks.django_project.elsewhere"],
}
TASKS: dict[str, Any] = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail", "slow"], "OPTIONS": PLAIN},
    "committed": {"BACKEND": BACKEND, "QUEUES": ["committed"], "OPTIONS": {"on_commit": "default", "attempts": 1}},
}
