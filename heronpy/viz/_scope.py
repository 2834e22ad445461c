"""What the queries of a topology's dashboard are about, as label matchers."""

from __future__ import annotations

from heronpy.viz._queries import both, selector

TOPOLOGY = selector(topology="$topology", cluster="~$cluster", role="~$role", environ="~$environ")
"""Everything of the topology."""
CHOSEN = selector(container="~$container", instance="~$instance")
"""What the reader chose of it."""
USERS = both(TOPOLOGY, 'component!~"__.*__"')
"""The instances, without the engine's own processes."""
STREAM_MANAGERS = both(TOPOLOGY, selector(component="__stmgr__", container="~$container"))
