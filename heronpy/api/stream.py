"""Output streams, and the groupings that divide their tuples among the tasks of a bolt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.exceptions import InvalidTopologyError
from heronpy.api.serializer import default_serializer
from heronpy.plan import DEFAULT_STREAM, GroupingKind


class Stream:
    """An output stream of a spout or a bolt, declared in `outputs`."""

    DEFAULT_STREAM_ID = DEFAULT_STREAM

    def __init__(
        self,
        fields: Sequence[str] | None = None,
        name: str = DEFAULT_STREAM,
        direct: bool = False,
    ) -> None:
        """Declare a stream.

        Args:
            fields: names of the values of its tuples, in their order.
            name: the stream's id.
            direct: whether the emitting component names the receiving task of each tuple (`direct_task=`).

        Raises:
            TypeError: an argument of the wrong type.
        """
        if fields is None:
            fields = []
        elif not isinstance(fields, (list, tuple)):
            raise TypeError(f"the fields of a stream must be a list or a tuple, not {fields!r}")
        for field in fields:
            if not isinstance(field, str):
                raise TypeError(f"the fields of a stream must be strings, not {field!r}")
        if not isinstance(name, str):
            raise TypeError(f"the name of a stream must be a string, not {name!r}")
        if not isinstance(direct, bool):
            raise TypeError(f"'direct' must be True or False, not {direct!r}")
        self.fields: list[str] = list(fields)
        self.stream_id = name
        self.direct = direct

    def __repr__(self) -> str:
        return f"Stream(fields={self.fields!r}, name={self.stream_id!r}, direct={self.direct!r})"


class FieldGrouping(NamedTuple):
    """A grouping by key fields."""

    gtype: int
    """FIELDS or PARTIAL_KEY."""
    fields: list[str]


class CustomGrouping(NamedTuple):
    """A grouping by user code."""

    gtype: int
    """CUSTOM."""
    python_serialized: bytes
    """The pickled ICustomGrouping, or its pickled class path."""
    class_path: str = ""
    """The class path, if it is one: readable without unpickling anything."""


class Grouping:
    """Which task of a bolt gets a tuple. The plain ones are the numbers of the `Grouping` enumeration on the wire."""

    SHUFFLE = int(GroupingKind.SHUFFLE)
    """Evenly divided."""
    ALL = int(GroupingKind.ALL)
    """Every task gets a copy."""
    LOWEST = int(GroupingKind.LOWEST)
    """The task with the lowest id gets everything."""
    NONE = int(GroupingKind.NONE)
    """The user does not care: as SHUFFLE."""
    DIRECT = int(GroupingKind.DIRECT)
    """The emitting component names the task."""
    GLOBAL = LOWEST
    """Storm's name of LOWEST."""
    LOCAL_OR_SHUFFLE = int(GroupingKind.LOCAL_OR_SHUFFLE)
    """Divided among the tasks in the same container, where there are any; else as SHUFFLE."""

    FIELDS = FieldGrouping
    """Type of what `fields()` and `partial_key()` return."""
    CUSTOM = CustomGrouping
    """Type of what `custom()` returns."""

    _PLAIN = frozenset((SHUFFLE, ALL, LOWEST, NONE, DIRECT, LOCAL_OR_SHUFFLE))
    _KEYED = frozenset((int(GroupingKind.FIELDS), int(GroupingKind.PARTIAL_KEY)))

    @classmethod
    def is_grouping_sane(cls, gtype: Any) -> bool:
        """Whether this is a grouping."""
        if isinstance(gtype, cls.FIELDS):
            return gtype.gtype in cls._KEYED and bool(gtype.fields)
        if isinstance(gtype, cls.CUSTOM):
            return gtype.gtype == GroupingKind.CUSTOM and bool(gtype.python_serialized)
        return isinstance(gtype, int) and not isinstance(gtype, bool) and gtype in cls._PLAIN

    @classmethod
    def fields(cls, *fields: str | list[str]) -> FieldGrouping:
        """Tuples with equal values in these fields go to the same task.

        Raises:
            TypeError: a field's name that is not a string.
            ValueError: no field.
        """
        return cls.FIELDS(int(GroupingKind.FIELDS), _field_names(fields))

    @classmethod
    def partial_key(cls, *fields: str | list[str]) -> FieldGrouping:
        """Each key has two tasks, and the less loaded one of them gets the tuple: for keys of very unequal weight.

        Raises:
            TypeError: a field's name that is not a string.
            ValueError: no field.
        """
        return cls.FIELDS(int(GroupingKind.PARTIAL_KEY), _field_names(fields))

    @classmethod
    def custom(cls, customgrouper: ICustomGrouping | str) -> CustomGrouping:
        """The user's own grouping: an object, which is pickled, or the class path of one without arguments.

        Raises:
            TypeError: neither.
        """
        if not isinstance(customgrouper, (ICustomGrouping, str)):
            raise TypeError(f"a custom grouping must be an ICustomGrouping or a class path, not {customgrouper!r}")
        path = customgrouper if isinstance(customgrouper, str) else ""
        return cls.CUSTOM(int(GroupingKind.CUSTOM), default_serializer.serialize(customgrouper), path)

    @classmethod
    def custom_serialized(cls, serialized: bytes, is_java: bool = True) -> CustomGrouping:
        """A custom grouping that is pickled already.

        Raises:
            TypeError: not bytes.
            NotImplementedError: `is_java`, because no Java runs here.
        """
        if not isinstance(serialized, bytes):
            raise TypeError(f"a serialized custom grouping must be bytes, not {serialized!r}")
        if is_java:
            raise NotImplementedError("a custom grouping in Java cannot run here: pass is_java=False for a Python one")
        return cls.CUSTOM(int(GroupingKind.CUSTOM), serialized)

    @classmethod
    def custom_object(cls, java_class_name: str, arg_list: Sequence[Any]) -> NoReturn:
        """Always raises NotImplementedError: no Java runs here."""
        raise NotImplementedError(f"the Java grouping {java_class_name} cannot run here: use Grouping.custom()")


def _field_names(fields: tuple[str | list[str], ...]) -> list[str]:
    names: list[Any] = list(fields[0]) if len(fields) == 1 and isinstance(fields[0], (list, tuple)) else list(fields)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a grouping's fields must be strings, not {name!r}")
    if not names:
        raise InvalidTopologyError("a grouping by fields needs at least one field")
    return names
