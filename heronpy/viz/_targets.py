"""Where the Metrics Managers of the running topologies are, for Prometheus, and what their topologies may use.

A Metrics Manager writes the address of its endpoint into its container's directory, and removes it when it ends. One
that was killed leaves the file behind until it runs again: Prometheus then gets no answer, which is what it should
say.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from heronpy.address import join_address, split_address
from heronpy.config import sinks_from_text
from heronpy.errors import NotFoundError, StateError, UsageError
from heronpy.files import ABSENT, replace_file
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.security import CA_FILE, read_secret

log = logging.getLogger(__name__)

ADDRESS_FILE = "prometheus.address"
AUTHORITIES_SUFFIX = ".ca.pem"
"""Beside `heron.json` is `heron.ca.pem`: whom a scraper trusts."""
Place = dict[str, str]


def targets(
    launches: Iterable[Launch], reported: Callable[[Launch], Mapping[int, str]] = lambda launch: {}
) -> list[dict[str, Any]]:
    """The Metrics Managers of these topologies, as Prometheus' `file_sd` and `http_sd` take them.

    Labels: cluster, role, environ, topology, container, and the Metrics Manager as instance.

    Args:
        launches: The topologies.
        reported: Returns what a topology's master knows of addresses by container. Asked where no container is on this
            host.
    """
    return [
        _target(launch, container, address)
        for launch in launches
        for container, address in (_addresses(launch) if on_this_host(launch) else sorted(reported(launch).items()))
    ]


def on_this_host(launch: Launch) -> bool:
    """Whether containers of the topology have their directories here."""
    return any(launch.dir.glob("container_*"))


def limits(plans: Iterable[tuple[Launch, PackingPlan]]) -> str:
    """What topologies may use, as a file of recording rules; the alerts about memory and outboxes look there.

    `heron:memory_limit_bytes` is the least that the packing plan gives to an instance of a component;
    `heron:outbox_high_bytes` is where backpressure begins.
    """
    rules = []
    for launch, packing in plans:
        place = _place(launch)
        rules.append(_constant("heron:outbox_high_bytes", outbox_bytes_high(launch), place))
        least: dict[str, int] = {}
        for instance in (i for c in packing.containers for i in c.instances):
            ram = instance.resources.ram_bytes
            least[instance.component] = min(ram, least.get(instance.component, ram))
        for component, ram in sorted(least.items()):
            rules.append(_constant("heron:memory_limit_bytes", ram, {**place, "component": component}))
    return yaml.safe_dump({"groups": [{"name": "heron limits", "rules": rules}] if rules else []}, sort_keys=False)


def outbox_bytes_high(launch: Launch) -> int:
    """How much may wait for one receiver before backpressure begins."""
    return launch.config.stmgr.outbox_bytes_high


class Discovery:
    """Keeps files for Prometheus equal to what runs.

    Args:
        find: returns the topologies that run.
        plan_of: returns the packing plan of one.
        targets_file: gets the targets, as JSON.
        limits_file: gets the limits, as YAML.
        scraper: returns the certificate that scrapers show, PEM.
        reported: returns what a topology's master knows of addresses: see `targets`.
    """

    def __init__(
        self,
        find: Callable[[], list[Launch]],
        plan_of: Callable[[Launch], PackingPlan],
        *,
        targets_file: Path | None = None,
        limits_file: Path | None = None,
        scraper: Callable[[], bytes] = bytes,
        reported: Callable[[Launch], Mapping[int, str]] = lambda launch: {},
    ) -> None:
        self._find = find
        self._plan_of = plan_of
        self._targets_file = targets_file
        self._limits_file = limits_file
        self._scraper = scraper
        self._reported = reported
        self._written: dict[Path, str] = {}
        self._plans: dict[str, PackingPlan] = {}
        """Of the running topologies, by id."""

    def refresh(self) -> list[Launch]:
        """Look, and write what has changed. Returns the topologies that run.

        A file is replaced at once: a reader never sees a part of it.

        Raises:
            StateError: what runs cannot be found out, or a file cannot be written. The files are as they were.
        """
        launches = self._find()
        if self._targets_file is not None:
            # Before the targets: what is scraped must be trusted by then.
            self._write(self._targets_file.with_suffix(AUTHORITIES_SUFFIX), _authorities(launches, self._scraper))
            self._write(self._targets_file, json.dumps(targets(launches, self._reported), indent=2) + "\n")
        if self._limits_file is not None:
            self._write(self._limits_file, limits(self._planned(launches)))
        return launches

    def _planned(self, launches: Sequence[Launch]) -> list[tuple[Launch, PackingPlan]]:
        known, self._plans = self._plans, {}
        for launch in launches:
            try:
                self._plans[launch.topology_id] = known.get(launch.topology_id) or self._plan_of(launch)
            except (NotFoundError, StateError) as e:  # being submitted or killed, or its state manager is down
                log.warning("no limits of topology %s: %s", launch.topology, e)
        return [(launch, self._plans[launch.topology_id]) for launch in launches if launch.topology_id in self._plans]

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(path) == text and path.exists():
            return
        try:
            replace_file(path, text, durable=False)
        except OSError as e:
            raise StateError(f"{path} cannot be written: {e.strerror}") from e
        self._written[path] = text


def _authorities(launches: Iterable[Launch], scraper: Callable[[], bytes]) -> str:
    """The certificates of the authorities of these topologies, PEM.

    The scraper's own comes first: Prometheus refuses a file without any.
    """
    found = [scraper()]
    for launch in launches:
        if launch.config.security.tls:
            try:
                found.append(read_secret(launch.tls_dir / CA_FILE))
            except (NotFoundError, StateError) as e:  # being submitted or killed
                log.warning("no authority of topology %s: %s", launch.topology, e)
    return b"".join(found).decode("ascii")


def _place(launch: Launch) -> Place:
    return {"cluster": launch.cluster, "role": launch.role, "environ": launch.environ, "topology": launch.topology}


def _addresses(launch: Launch) -> Iterator[tuple[int, str]]:
    for path in sorted(launch.dir.glob(f"container_*/{ADDRESS_FILE}"), key=lambda p: (len(p.parent.name), p)):
        try:
            container = int(path.parent.name.removeprefix("container_"))
            yield container, join_address(*split_address(path.read_text()))
        except (*ABSENT, UsageError, ValueError):
            continue  # its Metrics Manager ends right now
        except OSError as e:
            log.warning("no target of topology %s: %s cannot be read: %s", launch.topology, path, e.strerror)


def _target(launch: Launch, container: int, address: str) -> dict[str, Any]:
    labels = {**_place(launch), "container": str(container), "instance": f"metricsmgr-{container}"}
    sink = next((s for s in sinks_from_text(launch.config.metrics.sinks) if s.sink_class == "PrometheusSink"), None)
    path = "/" + str(sink.options.get("path", "/metrics")).strip("/") if sink else "/metrics"
    if path != "/metrics":
        labels["__metrics_path__"] = path
    if launch.config.security.tls and launch.config.metrics.prometheus_tls:
        labels["__scheme__"] = "https"
    return {"targets": [address], "labels": labels}


def _constant(record: str, value: int, labels: Place) -> dict[str, Any]:
    return {"record": record, "expr": f"vector({value})", "labels": labels}
