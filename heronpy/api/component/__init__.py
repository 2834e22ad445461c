"""What spouts and bolts have in common."""

from heronpy.api.component.base_component import BaseComponent
from heronpy.api.component.component_spec import GlobalStreamId, HeronComponentSpec

__all__ = ["BaseComponent", "GlobalStreamId", "HeronComponentSpec"]
