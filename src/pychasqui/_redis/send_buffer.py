"""How much of what was written to a socket is still in the send buffer of the system."""

from __future__ import annotations

import socket
import sys
from array import array

if sys.platform.startswith("linux"):
    import fcntl
    import termios


def count_bytes_in_send_buffer(sock: socket.socket | None) -> int:
    """Returns the bytes in the system's send buffer. Only Linux reports them; elsewhere they count as sent."""
    if sock is None or not sys.platform.startswith("linux"):
        return 0
    queued = array("i", [0])
    try:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, queued)
    except OSError:  # a kind of socket without this call, or closed meanwhile
        return 0
    return queued[0]
