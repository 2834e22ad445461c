"""A topology that no process could be told of is refused where it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.config import MIB
from heronpy.errors import TopologyError
from heronpy.loader import Definition
from heronpy.submit import prepare


class Words(Spout):
    outputs = ("word",)


class Counts(Bolt):
    pass


def definition(table_bytes: int) -> Definition:
    builder = TopologyBuilder("counted")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("counts", Counts, 1, {words: Grouping.SHUFFLE}, {"app.table": "x" * table_bytes})
    return Definition.of(builder.build())


def test_a_definition_that_fits_into_no_message_is_refused_with_its_largest_part(tmp_path: Path) -> None:
    prepare(definition(15 * MIB), home=tmp_path)
    with pytest.raises(TopologyError, match=r"counted takes 16,777,\d{3} bytes .* are of component 'counts'"):
        prepare(definition(16 * MIB), home=tmp_path)
