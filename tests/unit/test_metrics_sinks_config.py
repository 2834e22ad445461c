"""`metrics_sinks.yaml`: what it may say, and what is refused with the nearest known name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.config import EngineConfig, sinks_from, sinks_from_text, sinks_to_text
from heronpy.config.cluster import load_cluster
from heronpy.errors import ConfigError

FILE = {"class": "FileSink", "flush-frequency-ms": 1000, "filename-output": "m.json"}


def test_a_sink_has_the_keys_of_its_section_and_the_defaults_of_its_class() -> None:
    (sink,) = sinks_from({"sinks": ["file-sink"], "file-sink": FILE}, "x.yaml")
    assert (sink.name, sink.sink_class, sink.flush_interval_ms, sink.restart_attempts) == (
        "file-sink",
        "FileSink",
        1000,
        -1,
    )
    assert sink.options == {"filename-output": "m.json", "file-maximum": 5}


def test_a_section_that_is_not_listed_is_not_in_use() -> None:
    assert sinks_from({"sinks": [], "file-sink": FILE}, "x.yaml") == ()


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("org.apache.heron.metricsmgr.sink.FileSink", "FileSink"),
        ("org.apache.heron.metricsmgr.sink.tmanager.TManagerSink", "TManagerSink"),
        ("TMasterSink", "TManagerSink"),
        ("mine.sinks.FileSink", "mine.sinks.FileSink"),
    ],
)
def test_herons_class_names_mean_ours_and_other_paths_themselves(written: str, used: str) -> None:
    (sink,) = sinks_from({"sinks": ["s"], "s": {"class": written}}, "x.yaml")
    assert sink.sink_class == used


def test_graphite_takes_host_port_and_prefix() -> None:
    section = {"class": "GraphiteSink", "host": "graphite.example", "port": 2103, "prefix": "prod"}
    (sink,) = sinks_from({"sinks": ["g"], "g": section}, "x.yaml")
    assert sink.options == {"graphite-host": "graphite.example", "graphite-port": 2103, "metrics-prefix": "prod"}


def test_a_class_of_somebody_elses_may_have_any_keys() -> None:
    (sink,) = sinks_from({"sinks": ["s"], "s": {"class": "mine.Sink", "colour": "blue"}}, "x.yaml")
    assert sink.options == {"colour": "blue"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sinks": ["file-snk"], "file-sink": FILE}, "did you mean 'file-sink'"),
        ({"sink": ["file-sink"], "file-sink": FILE}, "did you mean 'sinks'"),
        ({"file-sink": FILE}, "sinks must be a list"),
        ({"sinks": [], "f": {**FILE, "file-maximun": 3}}, "did you mean 'file-maximum'"),
        ({"sinks": [], "f": {**FILE, "class": "FileSnk"}}, "did you mean 'FileSink'"),
        ({"sinks": [], "f": {**FILE, "class": "org.apache.heron.metricsmgr.sink.WebSink"}}, "which is none of"),
        ({"sinks": [], "f": {**FILE, "file-maximum": "three"}}, "file-maximum must be a whole number, not 'three'"),
        ({"sinks": [], "f": {**FILE, "file-maximum": True}}, "file-maximum must be a whole number, not True"),
        ({"sinks": [], "f": {**FILE, "flush-frequency-ms": 0}}, "flush-frequency-ms must be positive"),
        ({"sinks": [], "p": {"class": "PrometheusSink", "include-topology-name": 1}}, "must be true or false"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        sinks_from(values, "x.yaml")
    assert str(refused.value).startswith("x.yaml: ")


def test_sinks_travel_as_one_value_of_the_configuration() -> None:
    sinks = sinks_from({"sinks": ["file-sink"], "file-sink": FILE}, "x.yaml")
    config = EngineConfig.from_keys({"heron.metricsmgr.sinks": sinks_to_text(sinks)})
    assert sinks_from_text(EngineConfig.from_keys(config.to_keys()).metrics.sinks) == sinks


def test_without_a_file_prometheus_and_the_topology_master_are_in_use() -> None:
    assert [s.sink_class for s in sinks_from_text("")] == ["TManagerSink", "PrometheusSink"]


@pytest.mark.parametrize("text", ["{", "[]", '{"sinks": ["nobody"]}'])
def test_a_value_that_is_no_configuration_of_sinks_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"heron\.metricsmgr\.sinks"):
        EngineConfig.from_keys({"heron.metricsmgr.sinks": text})


@pytest.mark.parametrize("cluster", ["local", "localzk", "localetcd", "kubernetes"])
def test_the_clusters_that_are_shipped_write_files_and_serve_prometheus(cluster: str, tmp_path: Path) -> None:
    config = load_cluster(cluster, home=tmp_path).engine_config()
    assert [s.sink_class for s in sinks_from_text(config.metrics.sinks)] == [
        "TManagerSink",
        "PrometheusSink",
        "FileSink",
    ]
