"""Sums in batch runs: of numpy's integers, of which two may be more than has room in one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.connectors import ListSource
from heronpy.pipeline import Job, ViewReader, reductions, running
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import model

VALUES: dict[str, list[Any]] = {
    "small": [np.int8(100)] * 5,
    "large": [np.int64(2**62)] * 5,
    "unsigned": [np.uint8(200)] * 3,
    "ints and others": [1000, np.int8(-100), np.uint16(60_000), 10, np.uint16(60_000)],
    "floats": [np.float64(1e308)] * 3,
}


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of the floats
@pytest.mark.parametrize("keys_max", [reductions.TABLE_KEYS_MAX, 0], ids=["where they are read", "where parts meet"])
def test_sums_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_max: int) -> None:
    model(monkeypatch, long=False)
    monkeypatch.setattr("heronpy.pipeline.outputs.TABLE_KEYS_MAX", keys_max)
    pairs = [(key, value) for key, values in VALUES.items() for value in values]
    builder, config = Builder(), Config()
    source = ListSource(pairs, times=[1.0] * len(pairs), ids=[str(n) for n in range(len(pairs))])
    builder.new_source(source).map(tuple).to_store("sums", Sum())
    config.set_pipeline(tmp_path, batch_length=10)
    assert running.run(Job.of(Program("sums", config, builder.graph)), master="local[2]").dead_letters == 0
    with contextlib.closing(ViewReader(tmp_path, "sums", Sum())) as reader:
        found = dict(reader.items(0))
    assert found == {key: sum(map(float if key == "floats" else int, values)) for key, values in VALUES.items()}
