"""The endpoint that Prometheus scrapes: answers who has a certificate, and whoever else connects costs it little."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from topology_on_disk import EngineProcess, launch_in

from heronpy.address import split_address
from heronpy.runtime import Launch
from heronpy.security import METRICS_DNS_NAME, authority
from heronpy.testing import eventually, scrape

PLAIN = {"heron.metricsmgr.prometheus.tls": False}
CONNECTIONS_MAX = 16
SERIES = "heron_metrics_series_dropped"


@contextlib.asynccontextmanager
async def endpoint(launch: Launch) -> AsyncIterator[int]:
    """The port of a Metrics Manager's endpoint."""
    async with metricsmgr(launch) as (_, port):
        yield port


@contextlib.asynccontextmanager
async def metricsmgr(launch: Launch) -> AsyncIterator[tuple[EngineProcess, int]]:
    """A Metrics Manager, and the port of its endpoint."""
    file = launch.container_dir(1) / "prometheus.address"

    def port() -> int:
        assert file.exists()
        return split_address(file.read_text())[1]

    with EngineProcess("metricsmgr", launch, 1) as process:
        yield process, await eventually(port)


async def test_a_scraper_with_a_certificate_gets_the_metrics(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    async with endpoint(launch) as port:
        assert SERIES in await asyncio.to_thread(scrape, launch, port)


async def test_the_scraper_of_the_owner_gets_the_metrics_of_each_topology(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    scraper = authority.scraper_certificate(tmp_path / "tls")
    authority.create(launch.tls_dir, launch.topology_id, [1], days=1, scraper=scraper)
    async with endpoint(launch) as port:
        assert SERIES in await asyncio.to_thread(
            _get, port, launch.tls_dir / "ca.pem", tmp_path / "tls" / "scraper.pem"
        )


async def test_nobody_without_a_certificate_of_the_topology_gets_an_answer(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    authority.create(tmp_path / "tls", launch.topology_id, [1], days=1)
    stranger = tmp_path / "tls" / "container-1.pem"
    async with endpoint(launch) as port:
        for own in (None, stranger):
            with pytest.raises((ssl.SSLError, http.client.HTTPException, ConnectionError)):
                await asyncio.to_thread(_get, port, launch.tls_dir / "ca.pem", own)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            await asyncio.to_thread(_get, port, None, None)


async def test_a_metrics_manager_without_descriptors_says_that_scrapers_cannot_connect(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    log_file = launch.container_dir(1) / "log-files" / "metricsmgr-1.log"

    def logged(line: str) -> None:
        assert log_file.exists()
        assert line in log_file.read_text()

    async with metricsmgr(launch) as (process, port):
        await eventually(lambda: logged("metricsmgr-1 collects at"))  # it has opened what it needs
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, limits[1]))
        with socket.create_connection(("127.0.0.1", port)):
            await eventually(lambda: logged("scrapers cannot connect: [Errno 24] Too many open files"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        assert SERIES in await asyncio.to_thread(scrape, launch, port)


async def test_a_plain_endpoint_is_there_for_those_who_ask_for_it(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, PLAIN)
    async with endpoint(launch) as port:
        assert SERIES in await asyncio.to_thread(_get, port, None, None)


@pytest.mark.long
async def test_connections_that_send_nothing_keep_neither_memory_nor_scrapers_out_for_long(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    async with metricsmgr(launch) as (process, port):
        await asyncio.to_thread(scrape, launch, port)
        before = psutil.Process(process.pid).memory_info().rss
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX + 30)]
        try:
            text = await asyncio.to_thread(scrape, launch, port, timeout_s=30.0)
            assert SERIES in text
            assert psutil.Process(process.pid).memory_info().rss - before < 32 << 20
        finally:
            for one in silent:
                one.close()


async def test_a_request_that_does_not_end_is_cut(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, PLAIN)
    async with endpoint(launch) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(b"x: " + b"y" * 4000 + b"\r\n")
                await writer.drain()
        async with asyncio.timeout(120):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_other_paths_and_methods_are_refused(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, PLAIN)
    async with endpoint(launch) as port:
        for request, status in ((b"GET /etc HTTP/1.1", b"404"), (b"POST /metrics HTTP/1.1", b"405"), (b"junk", b"405")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request + b"\r\n\r\n")
            assert (await reader.read()).split(b" ")[1] == status
            writer.close()


async def test_it_ends_with_its_process_whoever_is_connected(tmp_path: Path) -> None:
    launch = launch_in(tmp_path)
    async with metricsmgr(launch) as (process, port):
        with socket.create_connection(("127.0.0.1", port)):
            assert await asyncio.to_thread(process.terminate) == 0
        assert not (launch.container_dir(1) / "prometheus.address").exists()


def _get(port: int, ca: Path | None, own: Path | None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(connection):
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
            if own is not None:
                context.load_cert_chain(own)
            plain = socket.create_connection(("127.0.0.1", port), timeout=120)
            connection.sock = context.wrap_socket(plain, server_hostname=METRICS_DNS_NAME)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
