"""Tasks in a module that Django does not look for."""

from __future__ import annotations

from pychasqui.integrations.django.framework import tasks


@tasks.task
def far_away() -> str:
    return "here"
