"""The parts that the Tracker is made of, without a web server before them: what the tests drive."""

from heron_tracker._adoption import Adoption, cluster_of
from heron_tracker._checkpoints import checkpoints_model
from heron_tracker._circuit_breaker import PROBE_S, CircuitBreaker
from heron_tracker._credentials import THREADS_PER_CLUSTER_MAX
from heron_tracker._file_data import download, file_data, file_stats
from heron_tracker._heron_names import answered as heron_names_answered
from heron_tracker._heron_names import heron_name
from heron_tracker._pipeline import complete_before, pipeline_model
from heron_tracker._pipeline_metrics import PipelineMetrics
from heron_tracker._query_eval import MINUTE_S, Budget, Line, evaluate
from heron_tracker._query_eval import minutes as minutes_between
from heron_tracker._query_parse import DEPTH_MAX, SERIES_MAX, Call, Node, Number, Series, parse, series_of
from heron_tracker._remembered import INTERVALS_MAX, Numbers, Remembered
from heron_tracker._stored_checkpoints import Stored, StoredCheckpoints
from heron_tracker._tmasters import CALLS_PER_TOPOLOGY_MAX, Tmasters, iso_time
from heron_tracker._topology import Topology, assemble
from heron_tracker._tracker import Tracker
from heron_tracker._trust import check_address, is_this_host

__all__ = [
    "CALLS_PER_TOPOLOGY_MAX",
    "DEPTH_MAX",
    "INTERVALS_MAX",
    "MINUTE_S",
    "PROBE_S",
    "SERIES_MAX",
    "THREADS_PER_CLUSTER_MAX",
    "Adoption",
    "Budget",
    "Call",
    "CircuitBreaker",
    "Line",
    "Node",
    "Number",
    "Numbers",
    "PipelineMetrics",
    "Remembered",
    "Series",
    "Stored",
    "StoredCheckpoints",
    "Tmasters",
    "Topology",
    "Tracker",
    "assemble",
    "check_address",
    "checkpoints_model",
    "cluster_of",
    "complete_before",
    "download",
    "evaluate",
    "file_data",
    "file_stats",
    "heron_name",
    "heron_names_answered",
    "is_this_host",
    "iso_time",
    "minutes_between",
    "parse",
    "pipeline_model",
    "series_of",
]
