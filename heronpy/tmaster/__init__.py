"""The Topology Master: owns the life of one topology, never its data.

`python -m heronpy.tmaster --dir D --container 0` runs one. `TopologyMaster` is the service, `_state` decides.
"""

from heronpy.tmaster._service import TopologyMaster

__all__ = ["TopologyMaster"]
