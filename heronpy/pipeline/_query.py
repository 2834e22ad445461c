"""Asking the views of a job for one key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.errors import UsageError
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.merged import Explained, MergedStore
from heronpy.pipeline.reconcile import node_of, plain


@dataclass(frozen=True)
class Answer:
    """What is known about a key."""

    view: str
    parts: Explained
    batch_length_ms: int

    def to_json(self, *, explain: bool) -> Any:
        """The value, or with `explain` an object of all parts."""
        if not explain:
            return plain(self.parts.merged)
        return {
            "view": self.view,
            "key": plain(self.parts.key),
            "value": plain(self.parts.merged),
            "batch": plain(self.parts.batch),
            "live": plain(self.parts.live),
            "upto": self.parts.upto,
        }

    def lines(self, *, explain: bool) -> list[str]:
        """The same for people."""
        if not explain:
            return [_text(self.parts.merged)]
        last = "" if self.parts.upto is None else f"batch {batch_name(self.parts.upto, self.batch_length_ms)}"
        upto, after = (f"up to {last}", f"after {last}") if last else ("no batch is done", "all")
        return [
            f"{_text(self.parts.merged)}  {self.view}",
            f"  batch view  {_text(self.parts.batch)}  {upto}",
            f"  live view   {_text(self.parts.live)}  {after}",
        ]


def answer(job: Job, key: Any, view: str | None, *, exact_only: bool = False) -> Answer | None:
    """What a view says about a key; None if it knows nothing of it.

    Args:
        job: whose views.
        key: as the program made it.
        view: which; may be left out if there is only one.
        exact_only: without what is live.

    Raises:
        UsageError: there are several views, or the key is of a type that none can have.
        NotFoundError: no such view; the nearest is named.
        HeronError: a store or a view cannot be read.
    """
    view = view_of(job, view)
    with MergedStore(job, view, exact_only=exact_only) as store:
        try:
            parts = store.explain(key)
        except TypeError as e:
            raise UsageError(f"{key!r} can be no key of {view}: {e}") from e
    return None if parts.merged is None else Answer(view, parts, job.batch_length_ms)


def view_of(job: Job, view: str | None) -> str:
    """The view that is asked for, or the only one.

    Raises:
        UsageError: none is asked for, and there are several, or none.
        NotFoundError: no such view; the nearest is named.
    """
    if view is None:
        views = list(job.stores())
        if len(views) != 1:
            has = f"has the views {', '.join(views)}: choose one with --view" if views else "has no view"
            raise UsageError(f"{job.name} {has}")
        return views[0]
    node_of(job, view)
    return view


def _text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else repr(value)
