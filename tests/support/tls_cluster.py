"""A cluster of the tests' own whose nodes announce host names and talk TLS alone, to clients and to each other."""

from __future__ import annotations

from tests.support.cluster import ClusterServers
from tests.support.server import RedisServer
from tests.support.tls_front import AUTHORITY, FOLDER

TRUST = f"ssl_ca_certs={AUTHORITY}"
CLIENT = f"ssl_certfile={FOLDER / 'client.pem'}&ssl_keyfile={FOLDER / 'client.pem'}"


def tls_options(port: int) -> list[str]:
    """Makes this the only port of a server or a Sentinel, which also use TLS to reach others."""
    here, client = str(FOLDER / "here.pem"), str(FOLDER / "client.pem")
    return [
        *("--port", "0", "--tls-port", str(port), "--tls-replication", "yes"),
        *("--tls-cert-file", here, "--tls-key-file", here, "--tls-ca-cert-file", str(AUTHORITY)),
        *("--tls-client-cert-file", client, "--tls-client-key-file", client),
    ]


class TlsNode(RedisServer):
    """Its only port is one for TLS."""

    def _command_line(self) -> list[str]:
        return [
            *super()._command_line(),
            *tls_options(self.port),
            *("--tls-cluster", "yes"),
            *("--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"),
        ]

    def show(self, certificate: str) -> None:
        """Uses another certificate from now on."""
        path = str(FOLDER / f"{certificate}.pem")
        self.execute("CONFIG", "SET", "tls-cert-file", path, "tls-key-file", path)


class TlsClusterServers(ClusterServers):
    def __init__(self) -> None:
        super().__init__(TlsNode)

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"rediss+cluster://{addresses}?{TRUST}&{CLIENT}"
