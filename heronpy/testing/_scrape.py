"""Scraping a container's metrics as Prometheus does: with a certificate, where the topology asks for one."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl

from heronpy.errors import UnavailableError
from heronpy.runtime import Launch
from heronpy.security import CA_FILE, METRICS_DNS_NAME


def scrape(launch: Launch, port: int, path: str = "/metrics", *, timeout_s: float = 60.0) -> str:
    """What the Prometheus endpoint at a port of this host says.

    Raises:
        UnavailableError: it answers with another status than 200.
        OSError: it does not answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    with contextlib.closing(connection):
        if launch.config.security.tls and launch.config.metrics.prometheus_tls:
            context = ssl.create_default_context(cafile=launch.tls_dir / CA_FILE)
            context.load_cert_chain(launch.tls_dir / "cli.pem")
            plain = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
            connection.sock = context.wrap_socket(plain, server_hostname=METRICS_DNS_NAME)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
    if response.status != http.HTTPStatus.OK:
        raise UnavailableError(f"port {port} answers {response.status}: {body}")
    return body
