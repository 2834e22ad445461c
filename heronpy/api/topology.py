"""Topologies: as a class, or built step by step.

    class WordCount(Topology):
        words = WordSpout.spec(par=2)
        counts = CountBolt.spec(par=2, inputs={words: Grouping.fields("word")})

or

    builder = TopologyBuilder("WordCount")
    words = builder.add_spout("words", WordSpout, par=2)
    builder.add_bolt("counts", CountBolt, par=2, inputs={words: Grouping.fields("word")})
    builder.build_and_submit()

A definition is a file, `<name>.defn`, that `heron submit` asks for through the environment variable HERON_OPTIONS.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from heronpy.api import api_constants
from heronpy.api._config import config_to_proto, sanitize_config, validate_config
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.exceptions import InvalidTopologyError
from heronpy.api.stream import Stream
from heronpy.config import check_name
from heronpy.errors import ConfigError, TopologyError
from heronpy.plan import LogicalPlan
from heronpy.proto import topology_pb2

OPTIONS_ENV = "HERON_OPTIONS"
INSTANCE_ENV = "HERON_INSTANCE"
"""Set in the processes of a running topology, which import the user's script once more."""


class TopologyType(type):
    """Makes and validates the definition when a subclass of Topology is declared."""

    # topology.max.spout.pending is left out on purpose (Heron: 100): without it the engine adapts the number of pending
    # tuples to what the topology can take.
    DEFAULT_TOPOLOGY_CONFIG: ClassVar[Mapping[str, str]] = {
        api_constants.TOPOLOGY_DEBUG: "false",
        api_constants.TOPOLOGY_STMGRS: "1",
        api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: "30",
        api_constants.TOPOLOGY_COMPONENT_PARALLELISM: "1",
        api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATMOST_ONCE,
        api_constants.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: "true",
    }

    def __new__(mcs, classname: str, bases: tuple[type, ...], class_dict: dict[str, Any]) -> TopologyType:
        if bases:
            class_dict.update(_definition(mcs, classname, class_dict))
        return super().__new__(mcs, classname, bases, class_dict)

    @classmethod
    def class_dict_to_specs(mcs, class_dict: Mapping[str, Any]) -> dict[str, HeronComponentSpec]:
        """The specs among a class's attributes, by name. A spec without one is named after its attribute.

        Raises:
            InvalidTopologyError: two specs have the same name.
        """
        specs: dict[str, HeronComponentSpec] = {}
        for name, spec in class_dict.items():
            if not isinstance(spec, HeronComponentSpec):
                continue
            if spec.name is None:
                spec.name = name
            if spec.name in specs:
                raise InvalidTopologyError(f"two components are named {spec.name!r}: give one another name")
            specs[spec.name] = spec
        return specs

    @classmethod
    def class_dict_to_topo_config(mcs, class_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults, overridden by the class's `config`; values as they are stored.

        Raises:
            ConfigError: an unknown key or a wrong value.
        """
        config = class_dict.get("config", {})
        sanitized = sanitize_config(config)
        validate_config(config)
        return {**mcs.DEFAULT_TOPOLOGY_CONFIG, **sanitized}

    @classmethod
    def add_spout_specs(mcs, spec: HeronComponentSpec, spout_specs: dict[str, Any]) -> None:
        """Add the message of a spout.

        Raises:
            InvalidTopologyError: it has no output.
        """
        if not spec.outputs:
            raise InvalidTopologyError(
                f"{spec.python_class_path}: {spec.name} requires at least one output, because it is a spout"
            )
        spout_specs[spec._named()] = spec.get_protobuf()

    @classmethod
    def add_bolt_specs(mcs, spec: HeronComponentSpec, bolt_specs: dict[str, Any]) -> None:
        """Add the message of a bolt.

        Raises:
            InvalidTopologyError: it has no input.
        """
        if not spec.inputs:
            raise InvalidTopologyError(
                f"{spec.python_class_path}: {spec.name} requires at least one input, because it is a bolt"
            )
        bolt_specs[spec._named()] = spec.get_protobuf()

    @staticmethod
    def get_heron_options_from_env() -> dict[str, str]:
        """The options that the submitting process passes in HERON_OPTIONS: `key=value,key=value`, `%%%%` for a space.

        - `cmdline.topologydefn.tmpdirectory`: where the definition is written to
        - `cmdline.topology.initial.state`: RUNNING (default) or PAUSED
        - `cmdline.topology.name`: another name than the class's

        Raises:
            RuntimeError: HERON_OPTIONS is not set.
            ValueError: it is not a list of `key=value`.
        """
        raw = os.environ.get(OPTIONS_ENV)
        if raw is None:
            raise RuntimeError(f"the environment variable {OPTIONS_ENV} is not set: run this with `heron submit`")
        options: dict[str, str] = {}
        for part in raw.replace("%%%%", " ").split(","):
            key, separator, value = part.partition("=")
            if not separator:
                raise ValueError(f"{OPTIONS_ENV} must be a list of key=value, which {part!r} is not")
            options[key] = value
        return options


class Topology(metaclass=TopologyType):
    """Subclass it, with component specs as attributes, and `config` as a dict of the topology's configuration.

    The definition is made and validated when the class is declared. It can be declared anywhere; only `write()` needs
    the environment of `heron submit`.
    """

    topology_name: ClassVar[str]
    topology_id: ClassVar[str]
    protobuf_topology: ClassVar[topology_pb2.Topology]
    topologydefn_tmpdir: ClassVar[str | None]
    heron_runtime_options: ClassVar[Mapping[str, str]]

    @classmethod
    def write(cls) -> None:
        """Write the definition for the submitting process. Does nothing inside a running topology.

        Raises:
            InvalidTopologyError: this is Topology itself.
            TopologyError: no definition was asked for.
        """
        if not hasattr(cls, "protobuf_topology"):
            raise InvalidTopologyError("the base Topology cannot be written: write a subclass")
        if os.environ.get(INSTANCE_ENV):
            return
        if cls.topologydefn_tmpdir is None:
            raise TopologyError(
                f"topology {cls.topology_name} is defined, but there is nothing to submit it to: run it with "
                "`heron submit CLUSTER FILE -`, which sets the environment variable HERON_OPTIONS; where other code "
                "imports the module, define it below `if __name__ == '__main__':`"
            )
        path = Path(cls.topologydefn_tmpdir) / f"{cls.topology_name}.defn"
        path.write_bytes(cls.protobuf_topology.SerializeToString())


class TopologyBuilder:
    """Builds a topology step by step."""

    def __init__(self, name: str) -> None:
        """Begin a topology.

        Raises:
            TypeError: `name` is not a string.
            ConfigError: `name` cannot be part of a path.
            InvalidTopologyError: `name` is `Topology`.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a topology must be a string, not {name!r}")
        if name == "Topology":
            raise InvalidTopologyError("a topology cannot be named 'Topology'")
        self.topology_name = check_name("topology name", name)
        self._specs: dict[str, HeronComponentSpec] = {}
        self._topology_config: dict[str, Any] = {}

    def add_spec(self, *specs: HeronComponentSpec) -> None:
        """Add components.

        Raises:
            TypeError: not a spec.
            InvalidTopologyError: a spec without a name, or with one that is taken.
        """
        for spec in specs:
            if not isinstance(spec, HeronComponentSpec):
                raise TypeError(f"add_spec() takes what spec() returns, not {spec!r}")
            if spec.name is None:
                raise InvalidTopologyError(f"{spec.python_class_path}: pass name= to its spec()")
            if spec.name == "config":
                raise InvalidTopologyError("a component cannot be named 'config'")
            if spec.name in self._specs:
                raise InvalidTopologyError(f"two components are named {spec.name!r}: give one another name")
            self._specs[spec.name] = spec

    def add_spout(
        self,
        name: str,
        spout_cls: Any,
        par: int,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Add a spout; see `Spout.spec`."""
        spec: HeronComponentSpec = spout_cls.spec(name=name, par=par, config=config, optional_outputs=optional_outputs)
        self.add_spec(spec)
        return spec

    def add_bolt(
        self,
        name: str,
        bolt_cls: Any,
        par: int,
        inputs: Any,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Add a bolt; see `Bolt.spec`."""
        spec: HeronComponentSpec = bolt_cls.spec(
            name=name, par=par, inputs=inputs, config=config, optional_outputs=optional_outputs
        )
        self.add_spec(spec)
        return spec

    def set_config(self, config: dict[str, Any]) -> None:
        """Set the topology's configuration, in place of what was set before.

        Raises:
            TypeError: not a dict.
        """
        if not isinstance(config, dict):
            raise TypeError(f"set_config() takes a dict, not {config!r}")
        self._topology_config = config

    def build(self) -> type[Topology]:
        """The topology as a class, validated.

        Raises:
            InvalidTopologyError: it is not valid.
            ConfigError: an unknown configuration key or a wrong value.
        """
        built = TopologyType(self.topology_name, (Topology,), self._construct_topo_class_dict())
        assert issubclass(built, Topology)
        return built

    def _construct_topo_class_dict(self) -> dict[str, Any]:
        """The attributes of the class that `build()` makes. Heron's name: subclasses call it."""
        return {**self._specs, "config": self._topology_config}

    def build_and_submit(self) -> None:
        """Build the topology and hand it to the submitting process. Does nothing inside a running topology.

        Raises:
            InvalidTopologyError: it is not valid.
            ConfigError: an unknown configuration key or a wrong value.
            TopologyError: no definition was asked for.
        """
        self.build().write()


def _definition(mcs: type[TopologyType], classname: str, class_dict: dict[str, Any]) -> dict[str, Any]:
    """The attributes that the declaration of a topology gets."""
    specs = mcs.class_dict_to_specs(class_dict)
    spouts: dict[str, Any] = {}
    bolts: dict[str, Any] = {}
    for spec in specs.values():
        _check(spec)
        if spec.is_spout:
            mcs.add_spout_specs(spec, spouts)
        else:
            mcs.add_bolt_specs(spec, bolts)
    if not spouts:
        raise InvalidTopologyError(f"{classname}: A Topology requires at least one Spout")
    config = mcs.class_dict_to_topo_config(class_dict)
    options = mcs.get_heron_options_from_env() if os.environ.get(OPTIONS_ENV) else {}
    name = check_name("topology name", options.get("cmdline.topology.name", classname))
    state = options.get("cmdline.topology.initial.state", "RUNNING")
    if state not in topology_pb2.TopologyState.keys():  # noqa: SIM118  # an enumeration, not a dict
        raise ConfigError(f"cmdline.topology.initial.state must be RUNNING or PAUSED, not {state!r}")
    proto = topology_pb2.Topology(
        id=f"{name}{uuid.uuid4()}",
        name=name,
        state=state,
        topology_config=config_to_proto(config),
        spouts=list(spouts.values()),
        bolts=list(bolts.values()),
    )
    try:
        LogicalPlan.from_proto(proto)
    except TopologyError as e:
        raise InvalidTopologyError(str(e)) from None
    return {
        "_topo_config": config,
        "_protobuf_spouts": spouts,
        "_protobuf_bolts": bolts,
        "_heron_specs": list(specs.values()),
        "topology_name": name,
        "topology_id": proto.id,
        "protobuf_topology": proto,
        "topologydefn_tmpdir": options.get("cmdline.topologydefn.tmpdirectory"),
        "heron_runtime_options": options,
    }


def _check(spec: HeronComponentSpec) -> None:
    check_name("component name", spec._named())
    if "<locals>" in spec.python_class_path:
        raise InvalidTopologyError(
            f"{spec.name}: the class {spec.python_class_path} is made inside a function, where no other process can "
            "find it: move it to the top of its module"
        )
