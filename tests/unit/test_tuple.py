"""What a bolt gets in its hands."""

from __future__ import annotations

import copy
import pickle

import pytest
from test_inbatch import batch_of

from heronpy.api.tuple import Detached, Tuple, TupleHelper

HAND_MADE = Tuple(["heron", 3], Detached("words", "default", 7, ("word", "n"), 255), 0)


def test_values_are_found_by_field_name() -> None:
    assert HAND_MADE["word"] == "heron"
    assert HAND_MADE["n"] == 3
    assert HAND_MADE.as_dict() == {"word": "heron", "n": 3}
    assert "word" in HAND_MADE
    assert "heron" not in HAND_MADE
    assert HAND_MADE.fields == ("word", "n")


def test_an_unknown_field_is_told_with_the_stream_and_its_fields() -> None:
    with pytest.raises(KeyError, match=r"stream words:default has no field 'wrod'; it has \['word', 'n'\]"):
        HAND_MADE["wrod"]


def test_it_unpacks_and_indexes_like_herons_namedtuple() -> None:
    id, component, stream, task, values = HAND_MADE
    assert (id, component, stream, task, values) == ("00000000000000ff", "words", "default", 7, ["heron", 3])
    assert [HAND_MADE[n] for n in range(5)] == list(HAND_MADE)
    assert HAND_MADE[-1] == ["heron", 3]
    assert HAND_MADE[1:3] == ("words", "default")  # type: ignore[index]  # a slice, as of a namedtuple
    with pytest.raises(IndexError):
        HAND_MADE[5]


def test_the_id_is_that_of_the_tree_and_empty_where_nothing_is_tracked() -> None:
    batch = batch_of([[4], [5]])
    assert [Tuple([], batch, n).id for n in range(2)] == ["0000000000000001", "0000000000000002"]
    assert Tuple([], batch_of([[]]), 0).id == ""


def test_repr_names_everything() -> None:
    assert repr(HAND_MADE) == (
        "Tuple(id='00000000000000ff', component='words', stream='default', task=7, values=['heron', 3])"
    )


@pytest.mark.parametrize("again", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy])
def test_a_pickled_tuple_can_be_read_without_its_batch(again: object) -> None:
    tup = Tuple(["a"], batch_of([[4], [5]]), 1)
    read = again(tup)  # type: ignore[operator]  # one of the two above
    assert list(read) == list(tup)
    assert read["word"] == "a"
    assert isinstance(read.origin_, Detached)


def test_pickles_of_tuples_do_not_carry_their_batch() -> None:
    tup = Tuple(["a"], batch_of([[n] for n in range(1, 1000)]), 1)
    assert len(pickle.dumps(tup)) < 300


def test_tuples_are_equal_only_to_themselves_and_may_be_kept_in_sets() -> None:
    batch = batch_of([[4]])
    one, other = Tuple(["a"], batch, 0), Tuple(["a"], batch, 0)
    assert one != other
    assert len({one, other, one}) == 2


def test_a_tick_is_a_tuple_of_the_system() -> None:
    tick = TupleHelper.make_tick_tuple()
    assert (tick.component, tick.stream, tick.values, tick.id) == ("__system", "__tick", [], "")
