"""What a topology says of a component: its class, its streams, its parallelism and its configuration."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.api._config import config_to_proto, sanitize_config, validate_config
from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.api.exceptions import InvalidTopologyError
from heronpy.api.stream import Grouping, Stream
from heronpy.errors import ConfigError, nearest
from heronpy.proto import topology_pb2


class HeronComponentSpec:
    """Made by the `spec()` of a spout or bolt class. `spec["stream"]` names one of its output streams."""

    def __init__(
        self,
        name: str | None,
        python_class_path: str,
        is_spout: bool,
        par: int,
        inputs: Any = None,
        outputs: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe a component.

        Args:
            name: its name; None takes the name of the topology's attribute that it is assigned to.
            python_class_path: `module.Class`.
            is_spout: spout or bolt.
            par: number of tasks.
            inputs: of a bolt: `{spec or spec["stream"]: grouping}`, or a list of these, divided by SHUFFLE.
            outputs: names of the fields of the default stream, and other Streams.
            config: configuration of this component, over the topology's.

        Raises:
            TypeError: an argument of the wrong type.
            InvalidTopologyError: `par` below 1.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a component must be a string, not {name!r}")
        if not isinstance(python_class_path, str):
            raise TypeError(f"the class path of a component must be a string, not {python_class_path!r}")
        if not isinstance(par, int) or isinstance(par, bool):
            raise TypeError(f"{name or python_class_path}: par must be a number, not {par!r}")
        if par < 1:
            raise InvalidTopologyError(f"{name or python_class_path}: par must be at least 1, not {par}")
        self.name = name
        self.python_class_path = python_class_path
        self.is_spout = bool(is_spout)
        self.parallelism = par
        self.inputs = inputs
        self.outputs = outputs
        self.custom_config = config
        self.uuid = str(uuid.uuid4())
        """Distinguishes specs while they have no name yet."""

    def get_protobuf(self) -> Any:
        """The `Spout` or `Bolt` message.

        Raises:
            InvalidTopologyError: inputs or outputs that make no sense.
            ConfigError: configuration that the engine does not know.
            TypeError: something of the wrong type.
        """
        proto: Any = topology_pb2.Spout() if self.is_spout else topology_pb2.Bolt()
        proto.comp.CopyFrom(self._component())
        if not self.is_spout:
            for source, grouping in self._inputs().items():
                _add_input(proto, source, grouping)
        for stream in self._streams().values():
            out = proto.outputs.add()
            out.stream.id = stream.stream_id
            out.stream.component_name = self._named()
            out.schema.CopyFrom(_schema(stream.fields))
            if stream.direct:
                out.direct = True
        return proto

    def get_out_streamids(self) -> set[str]:
        """Ids of the output streams."""
        return set(self._streams())

    def __getitem__(self, stream_id: str) -> GlobalStreamId:
        """One of the output streams, as input of a bolt.

        Raises:
            InvalidTopologyError: there is none with this id.
        """
        streams = self.get_out_streamids()
        if stream_id not in streams:
            raise InvalidTopologyError(
                f"{self.name or self.python_class_path} has no stream {stream_id!r}{nearest(stream_id, streams)}"
            )
        return GlobalStreamId(self, stream_id)

    def __repr__(self) -> str:
        return f"<{'spout' if self.is_spout else 'bolt'} {self.name} {self.python_class_path} ×{self.parallelism}>"

    def _named(self) -> str:
        if self.name is None:
            raise InvalidTopologyError(
                f"{self.python_class_path} is used without a name: assign its spec to an attribute of the topology, "
                "or pass name="
            )
        return self.name

    def _component(self) -> topology_pb2.Component:
        config = self.custom_config if self.custom_config is not None else {}
        stored = {TOPOLOGY_COMPONENT_PARALLELISM: str(self.parallelism), **sanitize_config(config)}
        try:
            validate_config(config)
        except ConfigError as e:
            raise ConfigError(f"{self._named()}: {e}") from None
        return topology_pb2.Component(
            name=self._named(),
            spec=topology_pb2.PYTHON_CLASS_NAME,
            class_name=self.python_class_path,
            config=config_to_proto(stored),
        )

    def _inputs(self) -> dict[GlobalStreamId, Any]:
        groupings: list[tuple[Any, Any]]
        if self.inputs is None:
            groupings = []
        elif isinstance(self.inputs, Mapping):
            groupings = list(self.inputs.items())
        elif isinstance(self.inputs, (list, tuple)):
            groupings = [(source, Grouping.SHUFFLE) for source in self.inputs]
        else:
            raise TypeError(f"{self._named()}: inputs must be a dict or a list, not {self.inputs!r}")
        inputs: dict[GlobalStreamId, Any] = {}
        for source, grouping in groupings:
            if not Grouping.is_grouping_sane(grouping):
                raise InvalidTopologyError(f"{self._named()}: {grouping!r} is not a grouping")
            if isinstance(source, HeronComponentSpec):
                stream = GlobalStreamId(source._named(), Stream.DEFAULT_STREAM_ID)
            elif isinstance(source, GlobalStreamId):
                stream = source
            else:
                raise InvalidTopologyError(f"{self._named()}: {source!r} is not an input: use a spec or spec['stream']")
            if stream in inputs:
                raise InvalidTopologyError(f"{self._named()} reads {stream} twice: use one grouping for a stream")
            inputs[stream] = grouping
        return inputs

    def _streams(self) -> dict[str, Stream]:
        """Output streams by id. Plain field names, and every Stream named `default`, make up the default stream."""
        if self.outputs is None:
            return {}
        if not isinstance(self.outputs, (list, tuple)):
            raise TypeError(f"{self.python_class_path}: outputs must be a list or a tuple, not {self.outputs!r}")
        streams: dict[str, Stream] = {}
        for output in self.outputs:
            if not isinstance(output, (str, Stream)):
                raise TypeError(f"{self.python_class_path}: outputs must be strings or Streams, not {output!r}")
            declared = Stream([output]) if isinstance(output, str) else output
            found = streams.get(declared.stream_id)
            if found is None:
                streams[declared.stream_id] = Stream(declared.fields, declared.stream_id, declared.direct)
            elif declared.stream_id == Stream.DEFAULT_STREAM_ID:
                found.fields.extend(declared.fields)
                found.direct = found.direct or declared.direct
            else:
                raise InvalidTopologyError(f"{self.python_class_path}: stream {declared.stream_id!r} is declared twice")
        return streams


class GlobalStreamId:
    """A stream of a component. Equal to every other with the same names."""

    def __init__(self, componentId: str | HeronComponentSpec, streamId: str) -> None:  # Heron's names
        if not isinstance(componentId, (str, HeronComponentSpec)):
            raise TypeError(f"componentId must be a string or a spec, not {componentId!r}")
        if not isinstance(streamId, str):
            raise TypeError(f"streamId must be a string, not {streamId!r}")
        self._component_id = componentId
        self.stream_id = streamId

    @property
    def component_id(self) -> str:
        """The component's name; a placeholder with its uuid as long as it has none."""
        if isinstance(self._component_id, str):
            return self._component_id
        return self._component_id.name or f"<no name yet, uuid: {self._component_id.uuid}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GlobalStreamId):
            return NotImplemented
        return self.component_id == other.component_id and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash((self.component_id, self.stream_id))

    def __str__(self) -> str:
        return f"{self.component_id}:{self.stream_id}"

    def __repr__(self) -> str:
        return f"GlobalStreamId({self.component_id!r}, {self.stream_id!r})"


def class_path(cls: type) -> str:
    """The path that a class is loaded by: `module.Class`, or `module.Outer.Inner`."""
    return f"{cls.__module__}.{cls.__qualname__}"


def outputs_of(cls: type, optional_outputs: Sequence[str | Stream] | None) -> list[str | Stream]:
    """The `outputs` of a class, and more.

    Raises:
        TypeError: neither is a list or a tuple.
    """
    outputs: list[str | Stream] = []
    for declared in (getattr(cls, "outputs", None), optional_outputs):
        if declared is None:
            continue
        if not isinstance(declared, (list, tuple)):
            raise TypeError(f"{class_path(cls)}: outputs must be a list or a tuple, not {declared!r}")
        outputs.extend(declared)
    return outputs


def _add_input(bolt: topology_pb2.Bolt, source: GlobalStreamId, grouping: Any) -> None:
    stream = topology_pb2.StreamId(id=source.stream_id, component_name=source.component_id)
    if isinstance(grouping, Grouping.FIELDS):
        added = bolt.inputs.add(stream=stream, grouping_fields=_schema(grouping.fields))
    elif isinstance(grouping, Grouping.CUSTOM):
        added = bolt.inputs.add(
            stream=stream,
            custom_grouping_object=grouping.python_serialized,
            type=topology_pb2.PYTHON_OBJECT,
            custom_grouping_class=grouping.class_path or None,
        )
    else:
        added = bolt.inputs.add(stream=stream)
        added.gtype = grouping
        return
    added.gtype = grouping.gtype


def _schema(fields: Sequence[str]) -> topology_pb2.StreamSchema:
    return topology_pb2.StreamSchema(
        keys=[topology_pb2.StreamSchema.KeyType(key=field, type=topology_pb2.OBJECT) for field in fields]
    )
