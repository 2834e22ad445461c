"""Who sends watermarks, and who follows them: decided by what components declare, so that all tasks know it alike.

A watermark speaks of the times in one field. So a component that sends some says of which field of its tuples
(`topology.component.watermark.field`), and bolts follow it whose event time is that field. Others would compare it with
times of another kind: those of an application are behind the times at which a broker has got them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.plan._cycles import feedback_edges
from heronpy.plan._logical import LogicalPlan

WATERMARK_FIELD_KEY: Final = "topology.component.watermark.field"
_TIMESTAMP_FIELD_KEY: Final = "topology.bolts.tuple.timestamp.field.name"
_DERIVES_KEYS: Final = (_TIMESTAMP_FIELD_KEY, "windowed_bolt_timestamp_extractor")


def watermark_fields(logical: LogicalPlan) -> Mapping[str, str]:
    """Of each component that sends watermarks, the field of its tuples that they speak of.

    A bolt that declares one sends some if it is configured with event time of its own, else if all that it reads send
    some, but for what comes round a cycle. Event time that is configured for the whole topology does not count: not
    every bolt has windows or timers.
    """
    back = feedback_edges(logical)
    declared = {
        name: str(component.config[WATERMARK_FIELD_KEY])
        for name, component in logical.components.items()
        if component.config.get(WATERMARK_FIELD_KEY)
    }
    while True:
        silent = {
            name
            for name in declared
            if not logical.components[name].is_spout
            and not has_event_time(logical.components[name].config)
            and not all(each in declared for each in _upstream(logical, name, back))
        }
        if not silent:
            return declared
        declared = {name: field for name, field in declared.items() if name not in silent}


def has_event_time(config: Mapping[str, Any]) -> bool:
    """Whether a configuration says what the time of tuples is, for bolts with windows or timers."""
    return any(key in config for key in _DERIVES_KEYS)


def followed_inputs(logical: LogicalPlan, bolt: str) -> frozenset[tuple[str, str]]:
    """The inputs (component, stream) of a bolt with event time whose watermarks are of this time."""
    field = logical.config_of(bolt).get(_TIMESTAMP_FIELD_KEY)
    if field is None:
        return frozenset()
    fields = watermark_fields(logical)
    return frozenset(
        (each.component, each.stream)
        for each in logical.components[bolt].inputs
        if fields.get(each.component) == field
        and field in logical.components[each.component].outputs[each.stream].fields
    )


def passed_on(logical: LogicalPlan, bolt: str) -> frozenset[str]:
    """The components whose watermarks a bolt passes on, if it has no event time; empty: it sends none."""
    if bolt not in watermark_fields(logical) or has_event_time(logical.components[bolt].config):
        return frozenset()
    return _upstream(logical, bolt, feedback_edges(logical))


def sends_watermarks(logical: LogicalPlan, component: str) -> bool:
    """Whether a component sends watermarks, and somebody reads them."""
    return component in watermark_fields(logical) and any(
        component in passed_on(logical, bolt.name)
        or any(each == component for each, _ in followed_inputs(logical, bolt.name))
        for bolt in logical.bolts
    )


def _upstream(logical: LogicalPlan, bolt: str, back: frozenset[tuple[str, str]]) -> frozenset[str]:
    inputs = logical.components[bolt].inputs
    return frozenset(each.component for each in inputs if (each.component, bolt) not in back)


__all__ = [
    "WATERMARK_FIELD_KEY",
    "followed_inputs",
    "has_event_time",
    "passed_on",
    "sends_watermarks",
    "watermark_fields",
]
