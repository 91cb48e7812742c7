"""A user of servers whose password is rotated, and a credential provider that learns the new one when the test says."""

from __future__ import annotations

from tests.support.server import RedisServer

USER = "ann"


class Vault:
    """The user is made on each of the servers, with all rights."""

    def __init__(self, *servers: RedisServer) -> None:
        self._servers = servers
        self.password = "first"
        self.asked = 0
        for server in servers:
            server.execute("ACL", "SETUSER", USER, "reset", "on", f">{self.password}", "~*", "&*", "+@all")

    def rotate(self, password: str) -> None:
        """Makes the servers accept only the new password. Live connections stay."""
        for server in self._servers:
            server.execute("ACL", "SETUSER", USER, "resetpass", f">{password}")

    def set_password(self, password: str) -> None:
        """Lets the provider know it."""
        self.password = password

    def drop_connections(self) -> None:
        for server in self._servers:
            server.execute("CLIENT", "KILL", "USER", USER)

    async def provide(self, address: str | None) -> tuple[str, str]:
        self.asked += 1
        return USER, self.password

    def remove_user_and_close_if_last(self) -> None:
        for server in self._servers:
            server.execute("ACL", "DELUSER", USER)
