"""`heron tracker`."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from heronpy.cli.commands import Verbose, home
from heronpy.errors import UsageError


def tracker(
    config_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A heron_tracker.yaml; without it, this user's local state.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen; 127.0.0.1 unless the file says more.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="8888 unless the file says more; 0: any.")] = None,
    type: Annotated[
        str | None, typer.Option(metavar="file|zookeeper|etcd|kubernetes", help="The state manager's type.")
    ] = None,
    name: Annotated[str, typer.Option(help="What to call the state manager given by --type.")] = "local",
    rootpath: Annotated[str, typer.Option(help="Its root: a directory, a znode, or a prefix.")] = "",
    hostport: Annotated[str, typer.Option(help="host:port[,host:port…] of its servers.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What callers must send as bearer token; readable by you alone.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer every client, without a token.", show_default=False)
    ] = False,
    actions: Annotated[
        bool, typer.Option("--actions", help="Allow to activate, deactivate, restart, kill.", show_default=False)
    ] = False,
    adopt: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Ask this cluster for credentials of topologies submitted elsewhere."),
    ] = None,
    config_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The clusters' configurations, for --adopt.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the URL as JSON.", show_default=False)] = False,
    verbose: Verbose = False,
) -> None:
    """Serve the REST API and the web UI of all topologies, until Ctrl-C.

    Without --token-file, the token is in tracker.token below HERON_HOME, made if need be; the printed URL signs in.
    """
    from heron_tracker import _config as c
    from heron_tracker import create_app
    from heronpy.web import listen, serve

    if no_token and token_file is not None:
        raise UsageError("--token-file and --no-token contradict each other: choose one")
    if config_path is not None and not adopt:
        raise UsageError("--config-path says where the clusters of --adopt are configured: name one")
    if type is None and (rootpath or hostport):
        raise UsageError("--rootpath and --hostport describe a state manager: name its --type too")
    config = (
        c.load_config(config_file, home=home())
        if config_file is not None
        else c.TrackerConfig(statemgrs=(c.local_state(home()),))
    )
    if type is not None:
        config = dataclasses.replace(config, statemgrs=(c.statemgr(name, type, hostport, rootpath, home=home()),))
    if adopt:
        clusters = c.adopted_clusters(adopt, home=home(), config_path=config_path)
        config = dataclasses.replace(config, adopt=clusters, adopt_directory=home() / c.ADOPTED_DIR)
        if config_file is None and type is None:
            followed = tuple(c.StateManagerConfig(cluster.name, cluster.statemgr) for cluster in clusters)
            config = dataclasses.replace(config, statemgrs=followed)
    if token_file is not None:
        config = dataclasses.replace(config, token=c.read_token(token_file), token_file=token_file)

    # What a server has to report (a state manager is away, a state is damaged) goes to stderr. With -v that is set up.
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)

    config = dataclasses.replace(config, host=host or config.host, actions=actions or config.actions)
    with listen(config.host, config.port if port is None else port, "the Tracker") as listening:
        if no_token:
            config = dataclasses.replace(config, token=None, token_file=None)
        elif config.token is None and config.token_required:
            token, path = c.default_token(home())
            config = dataclasses.replace(config, token=token, token_file=path)

        def ready(url: str) -> None:
            # The token is behind the #, which browsers send nowhere.
            login = f"{url}/login.html#{config.token}" if config.token is not None else url
            file = str(config.token_file) if config.token_file is not None else None
            ready_line = {"url": url, "pid": os.getpid(), "login_url": login, "token_file": file}
            print(json.dumps(ready_line) if as_json else f"heron tracker: {login}", flush=True)

        app = create_app(config)
        # Closed first: open streams would be waited for.
        serve(app, listening, config.host, ready, before_stop=app.state.tracker.events.close)
