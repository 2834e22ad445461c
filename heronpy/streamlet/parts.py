"""What a streamlet program becomes as a topology: the planner, and the spouts and bolts. For the tests of each."""

from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet._spout import SourceSpout
from heronpy.streamlet._stages import Stage, plan_stages
from heronpy.streamlet._topology import add_stages
from heronpy.streamlet._topology import settings as topology_settings
from heronpy.streamlet._window_folds import Evicting, HeldValues, ReducedValues

__all__ = [
    "Evicting",
    "HeldValues",
    "ReducedValues",
    "SourceSpout",
    "Stage",
    "StageBolt",
    "add_stages",
    "plan_stages",
    "topology_settings",
]
