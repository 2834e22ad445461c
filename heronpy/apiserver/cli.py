"""`heron apiserver`."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from heronpy.address import is_loopback
from heronpy.cli.commands import ConfigPath, Verbose, home
from heronpy.errors import UsageError

_PR_SET_DUMPABLE = 4


def apiserver(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any.")] = 9000,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that it may be addressed by; may be repeated.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's certificate and its chain, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate, PEM.")] = None,
    no_tls: Annotated[
        bool,
        typer.Option("--no-tls", help="Serve plain HTTP on any address, for a proxy in front.", show_default=False),
    ] = False,
    users_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Users; apiserver.users.yaml below HERON_HOME unless given.")
    ] = None,
    audit_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="apiserver.audit.jsonl below HERON_HOME unless given.")
    ] = None,
    audit_mb: Annotated[int, typer.Option(min=1, help="How large the audit log becomes until a new file begins.")] = 16,
    audit_files: Annotated[int, typer.Option(min=0, help="How many earlier ones are kept; 0: all.")] = 64,
    add_user: Annotated[
        str, typer.Option(metavar="NAME", help="Add a user, print the token, and end.", show_default=False)
    ] = "",
    access: Annotated[str, typer.Option(help="With --add-user: read, submit or admin.")] = "submit",
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="With --add-user: whose topologies; default: NAME's.")
    ] = None,
    unix_user: Annotated[
        str,
        typer.Option(
            metavar="USER",
            help="With --add-user: the unix user that runs this one's programs to define topologies, instead of "
            "--define-user's.",
            show_default=False,
        ),
    ] = "",
    define_user: Annotated[
        str,
        typer.Option(
            metavar="USER",
            help="The unix user that runs programs to define topologies; needs root.",
            show_default=False,
        ),
    ] = "",
    trust_users: Annotated[
        bool,
        typer.Option(
            "--trust-users",
            help="Let code of users who are not admins run as this server's unix user, who can do all that it can: "
            "programs that define topologies without --define-user, and topologies of clusters like `local`.",
            show_default=False,
        ),
    ] = False,
    pass_environment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A variable of the server's environment that topologies of clusters like `local` inherit, besides "
            "PATH and the like; may be repeated.",
        ),
    ] = None,
    define_seconds: Annotated[float, typer.Option(min=1, help="How long user code may define a topology.")] = 60.0,
    define_memory_mb: Annotated[int, typer.Option(min=128, help="How much memory it may take.")] = 2048,
    config_path: ConfigPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the URL as JSON.", show_default=False)] = False,
    verbose: Verbose = False,
) -> None:
    """Serve Heron's verbs over HTTP, until Ctrl-C: submit, kill, activate, deactivate, restart, update."""
    from heronpy import apiserver as a
    from heronpy.host import PASSED_ENV
    from heronpy.sandbox import Limits
    from heronpy.web import listen, serve

    users = users_file or home() / a.USERS_FILE
    if add_user:
        print(a.add_user(users, add_user, a.access_of(access), role or [], unix_user))
        return
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together: give both")
    if tls_cert is None and not no_tls and not is_loopback(host):
        raise UsageError(f"tokens would travel to {host} in the clear: give --tls-cert and --tls-key, or --no-tls")
    if define_user and os.geteuid() != 0:
        raise UsageError(f"--define-user {define_user} needs a server that runs as root")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    # Its memory and its environment are not for other processes of this user, such as user code.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.environ[PASSED_ENV] = " ".join((*a.PASSED_VARIABLES, *(pass_environment or ())))
    config = a.ApiServerConfig(
        home=home(),
        users_file=users,
        audit_file=audit_file or home() / a.AUDIT_FILE,
        audit_bytes_max=audit_mb << 20,
        audit_files_max=audit_files,
        config_path=config_path,
        host=host,
        hosts=tuple(allow_host or ()),
        trusts_users=trust_users,
        limits=Limits(seconds=define_seconds, memory_bytes=define_memory_mb << 20, user=define_user),
    )
    app = a.create_app(config)
    if not trust_users and not define_user and (names := app.state.server.users.without_unix_user()):
        print(
            f"heron: programs of {', '.join(names)} are refused, because they would run as this server's unix user: "
            "start it as root with --define-user, give each user a --unix-user, or accept it with --trust-users",
            file=sys.stderr,
        )

    def ready(url: str) -> None:
        ready_line = {"url": url, "pid": os.getpid(), "audit_file": str(config.audit_file)}
        print(json.dumps(ready_line) if as_json else f"heron apiserver: {url}", flush=True)

    with listen(host, port, "the API server") as listening:
        certificate = (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
        serve(app, listening, host, ready, before_stop=app.state.server.stop, certificate=certificate)
