"""A Django site whose tasks run by pychasqui.

python manage.py migrate --run-syncdb
python manage.py chasqui_worker        # in a second terminal
python manage.py runserver
curl -d email=ada@example.org localhost:8000/customers/
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
