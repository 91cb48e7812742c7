"""The app that INSTALLED_APPS names, for `manage.py chasqui_worker`."""

from __future__ import annotations

from django.apps import AppConfig


class ChasquiConfig(AppConfig):
    name = "pychasqui.integrations.django"
    label = "chasqui"
    verbose_name = "Chasqui"
