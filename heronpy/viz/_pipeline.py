"""The row of the batch side, for streamlet programs that have one. The Tracker exports it."""

from __future__ import annotations

from heronpy.viz._panels import Panel, Query, Row
from heronpy.viz._queries import gauge
from heronpy.viz._scope import TOPOLOGY


def pipeline() -> Row:
    """How far batch views are behind, what waits, and what was set aside."""
    complete = "heron_pipeline_archive_complete_before_seconds"
    return Row(
        "Pipeline",
        (
            Panel(
                title="Batch views and archive behind now",
                queries=(
                    Query(gauge("heron_pipeline_lag_seconds", TOPOLOGY, how="max"), "batch views"),
                    Query(f"time() - ({gauge(complete, TOPOLOGY, how='min')})", "archive"),
                    Query(gauge("heron_pipeline_batch_length_seconds", TOPOLOGY, how="max"), "length of a batch"),
                ),
                unit="s",
                description="Above three lengths of a batch `heron pipeline run` is not started, or fails.",
            ),
            Panel(
                title="Batches",
                queries=(Query(gauge("heron_pipeline_batches", TOPOLOGY, "state"), "{{state}}"),),
                description="Waiting: archived and not done. Damaged: computed without a part of their input.",
            ),
            Panel(
                title="Dead letters",
                queries=(
                    Query(
                        gauge("heron_pipeline_dead_letters", TOPOLOGY, "origin, reason, side"),
                        "{{origin}}: {{reason}} ({{side}})",
                    ),
                ),
                quiet=True,
                description="Elements and rows that were set aside. What neither side can compute both have.",
            ),
            Panel(
                title="Duration of a batch run",
                queries=(Query(gauge("heron_pipeline_last_run_seconds", TOPOLOGY, how="max"), "last run"),),
                unit="s",
                quiet=True,
            ),
            Panel(
                title="Keys that have drifted",
                queries=(Query(gauge("heron_pipeline_drifted_keys", TOPOLOGY, "view"), "{{view}}"),),
                quiet=True,
                description="Live and batch view do not agree on them, by the last `heron pipeline reconcile`.",
            ),
        ),
    )
