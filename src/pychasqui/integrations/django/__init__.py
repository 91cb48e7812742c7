"""A backend of Django's tasks: jobs of `django.tasks` (Django 6.0 and newer) or of the package django-tasks.

    INSTALLED_APPS = [..., "pychasqui.integrations.django"]      # for manage.py chasqui_worker
    TASKS = {"default": {"BACKEND": "pychasqui.integrations.django.ChasquiBackend", "QUEUES": ["default", "mail"]}}

Django imports this package while it starts, so the backend is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import ChasquiBackend as ChasquiBackend

__all__ = ["ChasquiBackend"]


def __getattr__(name: str) -> Any:
    if name != "ChasquiBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .backend import ChasquiBackend

    return ChasquiBackend
