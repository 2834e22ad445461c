"""Heron's metric names as Prometheus series."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from heronpy.metricsmgr.parts import HeronCollector, SeriesName, SourceSnapshot, series_name

Samples = dict[tuple[str, str, str, str, str], float]


def scraped(*sources: SourceSnapshot, series_max: int = 1000) -> Samples:
    """(sample name, instance, stream, source, key) -> value, as a Prometheus server would read it."""
    registry = CollectorRegistry()
    registry.register(HeronCollector("words", lambda: sources, series_max=series_max))
    samples: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for s in family.samples:
            key = (s.name, *(s.labels.get(label, "") for label in ("instance", "stream", "source", "key")))
            assert key not in samples, "Prometheus refuses a series that is there twice"
            samples[key] = s.value
    return samples


def source(totals: dict[str, float], latest: dict[str, float] | None = None, id: str = "i") -> SourceSnapshot:
    return SourceSnapshot(id, "word", 1, totals, latest or {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__emit-count/default", SeriesName("heron_emit_count", stream="default")),
        ("__execute-count/word/default", SeriesName("heron_execute_count", stream="default", source="word")),
        ("__py-physical-memory-byte", SeriesName("heron_py_physical_memory_byte")),
        ("__server/__bytes_to_workers", SeriesName("heron_server_bytes_to_workers")),
        ("__client_stmgr-2/__bytes_to_stmgrs", SeriesName("heron_client_bytes_to_stmgrs", key="stmgr-2")),
        (
            "__time_spent_back_pressure_by_compid/container_1_word_1",
            SeriesName("heron_time_spent_back_pressure_by_compid", key="container_1_word_1"),
        ),
        (
            "__connection_buffer_by_instanceid/container_1_word_1/bytes",
            SeriesName("heron_connection_buffer_by_instanceid_bytes", key="container_1_word_1"),
        ),
        ("clicks/de", SeriesName("heron_clicks", key="de")),
        ("größe in %", SeriesName("heron_gr_e_in")),
        ("///", SeriesName("heron_unnamed", key="//")),
    ],
)
def test_a_name_is_split_into_family_and_labels(name: str, expected: SeriesName) -> None:
    assert series_name(name) == expected


def test_metrics_of_checkpoints_are_in_base_units_and_say_what_they_are() -> None:
    counted = {"__checkpoint-count": 3.0, "__checkpoint-failure-count": 1.0, "__restore-count": 2.0}
    known = {"__checkpoint-age-ms": 1500.0, "__checkpoint-duration-ms": 20.0, "__checkpoint-size-bytes": 7.0}
    registry = CollectorRegistry()
    registry.register(HeronCollector("words", lambda: [source(counted, known)]))
    text = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {name: family.samples[0].value for name, family in families.items()}
    assert (values["heron_checkpoint_age_seconds"], values["heron_checkpoint_duration_seconds"]) == (1.5, 0.02)
    assert (values["heron_checkpoint_size_bytes"], values["heron_restore_count"]) == (7.0, 2.0)
    assert families["heron_restore_count"].type == "counter"
    assert [name for name, family in families.items() if "The engine's metric" in family.documentation] == []


def test_counters_and_gauges_are_exported_with_labels() -> None:
    samples = scraped(source({"__execute-count/word/default": 7.0}, {"__py-thread-count": 3.0}))
    assert samples["heron_execute_count_total", "i", "default", "word", ""] == 7.0
    assert samples["heron_py_thread_count", "i", "", "", ""] == 3.0


def test_names_that_collide_are_counted_and_never_break_the_scrape() -> None:
    samples = scraped(source({"a-b": 1.0, "a_b": 2.0, "c": 1.0}, {"c": 5.0, "c_total": 6.0}))
    assert samples["heron_a_b_total", "i", "", "", ""] == 1.0
    assert samples["heron_c_total", "i", "", "", ""] == 1.0
    assert samples["heron_metrics_series_dropped", "", "", "", ""] == 3.0


def test_the_number_of_series_is_bounded_and_the_rest_counted() -> None:
    samples = scraped(*(source({f"n/{i}": 1.0 for i in range(10)}, id=f"i{n}") for n in range(3)), series_max=25)
    assert sum(name == "heron_n_total" for name, *_ in samples) == 25
    assert samples["heron_metrics_series_dropped", "", "", "", ""] == 5.0
