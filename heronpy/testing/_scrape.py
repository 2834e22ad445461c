"""Scraping a container's metrics as Prometheus does: with a certificate, where the topology asks for one."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl

from heronpy.address import join_address, split_address
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch
from heronpy.security import CA_FILE, METRICS_DNS_NAME


def scrape(launch: Launch, where: int | str, path: str = "/metrics", *, timeout_s: float = 60.0) -> str:
    """What a Prometheus endpoint says.

    Args:
        launch: The topology.
        where: The endpoint's `host:port`, or its port on 127.0.0.1.
        path: What is asked for.
        timeout_s: How long it may take to connect, and to answer.

    Raises:
        UnavailableError: it answers with another status than 200.
        OSError: it does not answer.
    """
    address = ("127.0.0.1", where) if isinstance(where, int) else split_address(where)
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    with contextlib.closing(connection):
        if launch.config.security.tls and launch.config.metrics.prometheus_tls:
            context = ssl.create_default_context(cafile=launch.tls_dir / CA_FILE)
            context.load_cert_chain(launch.tls_dir / "cli.pem")
            plain = socket.create_connection(address, timeout=timeout_s)
            connection.sock = context.wrap_socket(plain, server_hostname=METRICS_DNS_NAME)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
    if response.status != http.HTTPStatus.OK:
        raise UnavailableError(f"{join_address(*address)} answers {response.status}: {body}")
    return body
