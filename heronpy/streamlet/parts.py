"""What a streamlet program becomes as a topology: the planner, and the spouts and bolts. For the tests of each."""

from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet._spout import SourceSpout
from heronpy.streamlet._stages import Stage, plan_stages
from heronpy.streamlet._topology import add_stages
from heronpy.streamlet._topology import settings as topology_settings
from heronpy.streamlet._watermark import REPEAT_MS as WATERMARK_REPEAT_MS
from heronpy.streamlet._watermark import Clock, Sent, Upstream

__all__ = [
    "WATERMARK_REPEAT_MS",
    "Clock",
    "Sent",
    "SourceSpout",
    "Stage",
    "StageBolt",
    "Upstream",
    "add_stages",
    "plan_stages",
    "topology_settings",
]
