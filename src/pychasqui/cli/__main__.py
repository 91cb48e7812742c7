"""The program `chasqui`; `python -m pychasqui.cli` is the same, for where the command is not on PATH."""

import sys

from .interrupts import install_sigterm_exit_if_process_1, let_ctrl_c_kill_process_unless_ignored

install_sigterm_exit_if_process_1()
let_ctrl_c_kill_process_unless_ignored()  # before the imports that take long; main() takes it back

from .main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
