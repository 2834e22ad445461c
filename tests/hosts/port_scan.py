"""What a stranger on the network gets to hear from the TCP ports of a host: run on a host without a certificate.

    port_scan.py ADDRESS:PORT …        one line of JSON for each: what it answers to what

Nothing but TLS counts as silence: the handshake, in which a server shows its certificate and demands one, and alerts.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections.abc import Callable

TIMEOUT_S = 3.0
HTTP1 = b"GET /metrics HTTP/1.1\r\nHost: metrics.heron\r\n\r\n"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # an empty SETTINGS frame
ALERT = 21
"""The type of a TLS record."""


def plain(address: tuple[str, int], sent: bytes) -> str:
    """What comes back without TLS: empty, an alert, or what should not."""
    answer = b""
    with socket.create_connection(address, TIMEOUT_S) as s:
        try:
            s.sendall(sent)
            s.shutdown(socket.SHUT_WR)
            while part := s.recv(4096):
                answer += part
        except OSError:  # a reset, or nothing in time
            pass
    if not answer:
        return ""
    return "alert" if answer[0] == ALERT and len(answer) == 5 + int.from_bytes(answer[3:5]) else repr(answer[:200])


def tls(address: tuple[str, int], sent: bytes, version: ssl.TLSVersion, protocols: list[str]) -> str:
    """The same with TLS, and no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    context.set_alpn_protocols(protocols)
    answer = b""
    with socket.create_connection(address, TIMEOUT_S) as s:
        try:
            with context.wrap_socket(s, server_hostname="metrics.heron") as secured:
                secured.sendall(sent)
                while part := secured.recv(4096):
                    answer += part
        except ssl.SSLError as e:
            return repr(answer) if answer else ("alert" if "alert" in str(e).lower() else "")
        except OSError:
            pass
    return repr(answer[:200]) if answer else ""


PROBES: dict[str, Callable[[tuple[str, int]], str]] = {
    "nothing": lambda address: plain(address, b""),
    "HTTP/1": lambda address: plain(address, HTTP1),
    "HTTP/2": lambda address: plain(address, HTTP2),
    "four letters": lambda address: plain(address, b"ruok"),
    "HTTP/1 over TLS 1.3": lambda address: tls(address, HTTP1, ssl.TLSVersion.TLSv1_3, ["http/1.1"]),
    "HTTP/2 over TLS 1.3": lambda address: tls(address, HTTP2, ssl.TLSVersion.TLSv1_3, ["h2"]),
    "HTTP/2 over TLS 1.2": lambda address: tls(address, HTTP2, ssl.TLSVersion.TLSv1_2, ["h2"]),
}


def scan(address: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    return {name: probe((host.strip("[]"), int(port))) for name, probe in PROBES.items()}


if __name__ == "__main__":
    for address in sys.argv[1:]:
        print(json.dumps({"address": address, "answers": scan(address)}), flush=True)
