"""A Django project for django_checks.py, with tasks of every kind."""
