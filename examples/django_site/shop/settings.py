"""The settings of the example: everything about tasks is in TASKS."""

from __future__ import annotations

import os
from pathlib import Path

SECRET_KEY = "of an example"
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["shop", "pychasqui.integrations.django"]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", str(Path(__file__).parents[1] / "shop.sqlite3")),
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"},
    }
}

TASKS = {
    "default": {
        "BACKEND": "pychasqui.integrations.django.ChasquiBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "redis_url": os.environ.get("CHASQUI_REDIS_URL", "embedded://"),
            "on_commit": "default",  # a task is enqueued when the view's transaction is committed
            "attempts": 5,
        },
    }
}
