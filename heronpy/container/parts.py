"""Parts of a container's processes that are tested alone."""

from heronpy.container._ending import ending

__all__ = ["ending"]
