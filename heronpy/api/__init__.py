"""What users write topologies with. The modules below have the names that they have in Apache Heron."""

from heronpy.api import api_constants
from heronpy.api._config import tick_interval_s, typed_config, validate_config
from heronpy.api._foreign_keys import without_effect
from heronpy.api.api_constants import TopologyExceptionPolicy, TopologyReliabilityMode
from heronpy.api.bolt import (
    BaseWindowedBolt,
    BasicBolt,
    Bolt,
    Count,
    Duration,
    JoinBolt,
    KeyedWindowBolt,
    SlidingWindowBolt,
    TumblingWindowBolt,
    TupleWindow,
    WindowContext,
)
from heronpy.api.component import GlobalStreamId, HeronComponentSpec
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.exceptions import FailedException, InvalidTopologyError
from heronpy.api.metrics import (
    AssignableMetrics,
    CountMetric,
    GaugeMetric,
    HistogramMetric,
    IMetric,
    IReducer,
    MeanReducedMetric,
    MeanReducer,
    MeterMetric,
    MultiAssignableMetrics,
    MultiCountMetric,
    MultiMeanReducedMetric,
    MultiReducedMetric,
    ReducedMetric,
    TimerMetric,
)
from heronpy.api.serializer import IHeronSerializer, MsgpackSerializer, PythonSerializer
from heronpy.api.spout import Spout
from heronpy.api.state import HashMapState, IStatefulComponent, ITwoPhaseStatefulComponent, State, StatefulComponent
from heronpy.api.stream import Grouping, Stream
from heronpy.api.task_hook import ITaskHook
from heronpy.api.timers import Timer, TimerKind
from heronpy.api.topology import Topology, TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple

__all__ = [
    "AssignableMetrics",
    "BaseWindowedBolt",
    "BasicBolt",
    "Bolt",
    "Count",
    "CountMetric",
    "Duration",
    "FailedException",
    "GaugeMetric",
    "GlobalStreamId",
    "Grouping",
    "HashMapState",
    "HeronComponentSpec",
    "HistogramMetric",
    "ICustomGrouping",
    "IHeronSerializer",
    "IMetric",
    "IReducer",
    "IStatefulComponent",
    "ITaskHook",
    "ITwoPhaseStatefulComponent",
    "InvalidTopologyError",
    "JoinBolt",
    "KeyedWindowBolt",
    "MeanReducedMetric",
    "MeanReducer",
    "MeterMetric",
    "MsgpackSerializer",
    "MultiAssignableMetrics",
    "MultiCountMetric",
    "MultiMeanReducedMetric",
    "MultiReducedMetric",
    "PythonSerializer",
    "ReducedMetric",
    "SlidingWindowBolt",
    "Spout",
    "State",
    "StatefulComponent",
    "Stream",
    "Timer",
    "TimerKind",
    "TimerMetric",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyExceptionPolicy",
    "TopologyReliabilityMode",
    "TumblingWindowBolt",
    "Tuple",
    "TupleWindow",
    "WindowContext",
    "api_constants",
    "tick_interval_s",
    "typed_config",
    "validate_config",
    "without_effect",
]
