"""Arrow tables as values of states."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from heronpy.errors import CheckpointError, ConfigError
from heronpy.state import Place, TaskStates
from tests.unit.state_kit import GROUPS, Component

pa: Any = pytest.importorskip("pyarrow")


def table(*rows: Any) -> Any:
    return pa.table({"n": pa.array(rows, pa.int64()), "text": [str(row) for row in rows]})


def declared(tasks: int = 1) -> Component:
    return Component(lambda states: states.keyed_state("batches", codec="arrow"), tasks)


def test_tables_come_back_also_with_other_numbers_of_tasks() -> None:
    component = declared()
    wanted = {f"key-{n}": table(*range(n), None) for n in range(20)}
    component.declared[0].update(wanted)
    component.checkpoint()
    component.declared[0]["key-3"] = wanted["key-3"] = table(7)
    component.checkpoint()
    component.restart(3)
    found = {key: value for state in component.declared for key, value in state.items()}
    assert found.keys() == wanted.keys()
    assert all(found[key].equals(value) for key, value in wanted.items())


def test_a_slice_is_saved_without_what_it_is_a_part_of() -> None:
    component = declared()
    component.declared[0]["small"] = table(*range(100_000)).slice(0, 5)
    assert component.checkpoint().size < 2000


def test_plain_values_are_as_in_all_codecs() -> None:
    component = declared()
    component.declared[0]["a"] = 7
    component.checkpoint()
    component.restart(1)
    assert component.declared[0]["a"] == 7


def test_what_is_no_table_fails_the_checkpoint_by_its_name() -> None:
    component = declared()
    component.declared[0]["bad"] = [1]
    with pytest.raises(CheckpointError, match=r"the value of key 'bad', a list, .* takes pyarrow.Table"):
        component.checkpoint()


def test_without_pyarrow_it_is_refused_when_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"component 'count', state 'batches': codec 'arrow' needs PyArrow"):
        TaskStates(Place("words-1", "count", 0, 1, GROUPS)).keyed_state("batches", codec="arrow")
