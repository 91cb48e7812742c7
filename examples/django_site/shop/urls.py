from __future__ import annotations

from django.urls import path

from shop import views

urlpatterns = [
    path("customers/", views.sign_up),
    path("tasks/<str:result_id>/", views.show_task),
]
