"""`python -m pychasqui.cli`: the same as `chasqui`, for where the command is not on PATH."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
