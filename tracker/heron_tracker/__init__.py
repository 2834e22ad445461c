"""The Tracker: a REST API over everything that runs, and the web UI.

    app = create_app(TrackerConfig(statemgrs=(local_state(home),)))

Paths and answers are those of Heron's Tracker 0.20.5, older path names included; what it has beyond them says so in its
OpenAPI page, `/docs`. Any number of Trackers can follow the same state managers: they change nothing.
"""

from heron_tracker._app import TrackerApp, create_app
from heron_tracker._config import (
    AdoptedCluster,
    ExtraLink,
    StateManagerConfig,
    TrackerConfig,
    adopted_clusters,
    load_config,
    local_state,
)
from heron_tracker._query_parse import QueryError
from heron_tracker._query_parse import parse as parse_query

__all__ = [
    "AdoptedCluster",
    "ExtraLink",
    "QueryError",
    "StateManagerConfig",
    "TrackerApp",
    "TrackerConfig",
    "adopted_clusters",
    "create_app",
    "load_config",
    "local_state",
    "parse_query",
]
