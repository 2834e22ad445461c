"""`tls`."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, Words, home, read_properties
from heronpy.cli._show import empty_table
from heronpy.cli._target import resolve
from heronpy.errors import StateError, UsageError
from heronpy.runtime import Launch

if TYPE_CHECKING:
    from heronpy.security.authority import Certificate


def tls(
    words: Words,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace all certificates by new ones first.", show_default=False)
    ] = False,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show the certificates of a topology, or renew them; running processes use new ones for their next connections."""
    from heronpy.security import authority

    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    if not launch.config.security.tls:
        raise UsageError(
            f"topology {launch.topology} has no certificates: it was submitted with heron.security.tls false"
        )
    if renew:
        _renew(launch)
    found = authority.inspect(launch.tls_dir)
    if as_json:
        print(json.dumps([_plain(one) for one in found], indent=2))
    else:
        _print(found, datetime.datetime.now(datetime.UTC))


def _renew(launch: Launch) -> None:
    from heronpy.security import authority

    try:
        authority.renew(launch.tls_dir, launch.topology_id, days=launch.config.security.certificate_days)
    except OSError as e:
        raise StateError(f"{launch.tls_dir} cannot be written: {e.strerror}") from e


def _plain(one: Certificate) -> dict[str, Any]:
    return {
        "identity": one.name,
        "subject": one.subject,
        "uri": one.uri,
        "dns_names": list(one.dns_names),
        "not_before": one.not_before.isoformat(),
        "not_after": one.not_after.isoformat(),
        "sha256": one.fingerprint,
    }


def _print(found: Sequence[Certificate], now: datetime.datetime) -> None:
    from rich.console import Console

    table = empty_table("identity", "uri", "expires", "sha256", right=("days left",))
    for one in found:
        days = (one.not_after - now).days
        table.add_row(one.name, one.uri or one.subject, f"{one.not_after:%Y-%m-%d}", one.fingerprint[:16], str(days))
    Console(width=500).print(table)
