from __future__ import annotations

from django.db import models


class Customer(models.Model):
    email = models.EmailField()
    welcomed = models.PositiveIntegerField(default=0)  # how often

    class Meta:
        app_label = "shop"
