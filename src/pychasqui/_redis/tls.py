"""The TLS context that a rediss:// URL asks for.

It trusts the system's authorities, or only those that the URL names. It checks the certificate and the host name unless
the URL switches that off, and uses TLS 1.2 or newer. No error shows the value of an option, which may be the password
of a key.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from ..errors import InvalidArgument
from .url import SERVER_HOSTNAME

T = TypeVar("T")

_VERIFY_MODES = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_OLDEST = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERSIONS = _OLDEST | {str(int(version)): version for version in _OLDEST.values()}  # also the numbers of Python's ssl
_HOSTNAME = re.compile(r"[0-9A-Za-z_:][0-9A-Za-z_.:-]*", re.ASCII)
_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}

# What to do about an error of OpenSSL, by a part of its text. The first that fits counts. An ALERT comes from the
# server, which under TLS 1.3 sends it when the connection is already made: then the error is that of a lost connection.
_REMEDIES = {
    "mismatch, certificate is not valid for": "the certificate is for another host; connect by a name that it has, or "
    "have it issued for this one too; through a tunnel, name the host that it has in ssl_server_hostname in redis_url",
    "certificate has expired": "renew the server's certificate; if it is still valid, set the clock of this machine",
    "certificate is not yet valid": "set the clock of this machine, or wait until the certificate is valid",
    "CERTIFICATE_VERIFY_FAILED": "no authority that is trusted here has signed it; ssl_ca_certs in redis_url names the "
    "file of the authority to trust",
    "ALERT_CERTIFICATE_REQUIRED": "the server asks for a certificate of the client; name its files in redis_url by "
    "ssl_certfile and ssl_keyfile",
    "ALERT_HANDSHAKE_FAILURE": "the server asks for a certificate of the client (name its files in redis_url by "
    "ssl_certfile and ssl_keyfile), or has no cipher in common with it (ssl_ciphers)",
    "ALERT_UNKNOWN_CA": "the server does not trust the authority that has signed the client's certificate; use one "
    "signed by an authority of the server in ssl_certfile",
    "ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired; renew the file that ssl_certfile names",
    "ALERT_CERTIFICATE_REVOKED": "the client's certificate was revoked; renew the file that ssl_certfile names",
    "ALERT_UNSUPPORTED_CERTIFICATE": "the client's certificate is not for clients; ssl_certfile must name one with the "
    "extended key usage clientAuth",
    "ALERT_BAD_CERTIFICATE": "the server does not accept the client's certificate; renew the file that ssl_certfile "
    "names",
    "ALERT_PROTOCOL_VERSION": "the server has no TLS version in common with the client; ssl_min_version in redis_url "
    "must not be above the server's newest, and that must be 1.2 or newer",
    "UNSUPPORTED_PROTOCOL": "the server has no TLS version in common with the client, which uses 1.2 or newer; "
    "update the server, or lower ssl_min_version in redis_url",
}


def make_tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Builds the context from the ssl_ options of a URL."""
    context = _make_context_with_authorities(options)
    mode = _read_choice(options, "ssl_cert_reqs", _VERIFY_MODES, "required")
    context.check_hostname = _read_choice(options, "ssl_check_hostname", _SWITCH, "true") and mode is not ssl.CERT_NONE
    context.verify_mode = mode
    context.minimum_version = _read_choice(options, "ssl_min_version", _VERSIONS, "1.2")
    context.verify_flags |= _read_flags(options, "ssl_include_verify_flags")
    context.verify_flags &= ~_read_flags(options, "ssl_exclude_verify_flags")
    if "ssl_ciphers" in options:
        with _naming_option_in_errors("ssl_ciphers"):
            context.set_ciphers(options["ssl_ciphers"])
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        with _naming_option_in_errors("ssl_certfile, ssl_keyfile or ssl_password"):
            # An empty password and not None: without a password OpenSSL would prompt on the terminal.
            password = options.get("ssl_password", "")
            context.load_cert_chain(options.get("ssl_certfile", ""), options.get("ssl_keyfile"), password)
    return context


def read_server_hostname(options: Mapping[str, str]) -> str | None:
    """Returns the host whose certificate the server must have, if it is not the one that the connection is made to."""
    name = options.get(SERVER_HOSTNAME)
    if name is not None and not _HOSTNAME.fullmatch(name):
        raise InvalidArgument(f"redis_url has the TLS option {SERVER_HOSTNAME}, which must be a host name or address")
    return name


def describe_disabled_checks(context: ssl.SSLContext) -> str:
    """Says what this context does not check, and which option switched it off; empty if it checks everything."""
    if context.verify_mode is ssl.CERT_NONE:
        return "the certificate is not checked (ssl_cert_reqs=none)"
    return "" if context.check_hostname else "the certificate's host name is not checked (ssl_check_hostname=false)"


def find_tls_remedy(text: str) -> str:
    """Returns what to do about an error of TLS, found by its text; empty if that is not known."""
    return next((remedy for part, remedy in _REMEDIES.items() if part in text), "")


def _make_context_with_authorities(options: Mapping[str, str]) -> ssl.SSLContext:
    with _naming_option_in_errors("ssl_ca_certs, ssl_ca_path or ssl_ca_data"):
        return ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"), cadata=options.get("ssl_ca_data")
        )


@contextmanager
def _naming_option_in_errors(option: str) -> Iterator[None]:
    """Turns an error of the ssl module into one that names the option and shows no value."""
    try:
        yield
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InvalidArgument(
            f"redis_url has TLS settings that do not work, {option}: {reason or type(error).__name__}"
        ) from None


def _read_choice(options: Mapping[str, str], option: str, choices: Mapping[str, T], default: str) -> T:
    chosen = options.get(option, default).lower()
    if chosen not in choices:
        raise InvalidArgument(f"redis_url has the TLS option {option}, which must be one of {', '.join(choices)}")
    return choices[chosen]


def _read_flags(options: Mapping[str, str], option: str) -> ssl.VerifyFlags:
    """Reads names of ssl.VerifyFlags, separated by commas."""
    flags = ssl.VerifyFlags(0)
    for name in filter(None, map(str.strip, options.get(option, "").split(","))):
        if name not in ssl.VerifyFlags.__members__:
            known = ", ".join(ssl.VerifyFlags.__members__)
            raise InvalidArgument(f"redis_url has the TLS option {option}, whose names must be among {known}")
        flags |= ssl.VerifyFlags[name]
    return flags
