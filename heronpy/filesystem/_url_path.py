"""A place in a store that is named by a URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class UrlPath:
    """A name below a URL. Of `Path` it has what needs no look into the store; it is no path of this host's."""

    root: str
    """The URL that the store is opened by, with its options."""
    inner: str = ""
    """The name below it, without slashes around it."""

    def __truediv__(self, name: str) -> UrlPath:
        return UrlPath(self.root, f"{self.inner}/{name}" if self.inner else name)

    def __str__(self) -> str:
        base = self.root.partition("?")[0].rstrip("/")
        return f"{base}/{self.inner}" if self.inner else base

    @property
    def url(self) -> str:
        """Everything that is needed to open this place: `__str__` leaves out the options."""
        base, mark, options = self.root.partition("?")
        return f"{base.rstrip('/')}/{self.inner}{mark}{options}" if self.inner else self.root

    @property
    def name(self) -> str:
        """Its last part."""
        return str(self).rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Of the name, with its dot."""
        dot = self.name.rfind(".")
        return self.name[dot:] if 0 < dot < len(self.name) - 1 else ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the name below the URL."""
        return tuple(self.inner.split("/")) if self.inner else ()

    @property
    def parent(self) -> UrlPath:
        """What it is in. Not beyond the URL."""
        assert self.inner, "nothing is known of what is above the URL"
        return UrlPath(self.root, self.inner.rpartition("/")[0])

    def with_name(self, name: str) -> UrlPath:
        """Its neighbour of this name."""
        return self.parent / name


Location = Path | UrlPath
"""Where a file or a directory is."""
