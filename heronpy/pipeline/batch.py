"""What is recorded of a batch that is done, of what archives have in a batch, and of batches that are rolled up."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.pipeline.parts import part_name

TIER_BATCHES = 16
"""So many batches make a tier of level 1 …"""
TIER_TIERS = 4
"""… and so many tiers of a level one of the next."""
KEPT = "~"
"""How the names of views begin that only runs read; no other's does, and stores take it."""
DAMAGED = "!"
"""In the name of a batch's input, before each file of which something cannot be read."""
GONE = f"{DAMAGED}gone="
"""The same before what names the files that are gone, where a batch has to be computed without them."""


def damage_of(fingerprint: str) -> str:
    """What of a batch's input cannot be read; empty: nothing."""
    return fingerprint.partition(DAMAGED)[2]


@dataclass
class Parts:
    """The files of one output in one version."""

    rows: int = 0
    """In all files together."""
    part_rows: list[int] = field(default_factory=list)
    """Rows of part 0, 1, …; a part without rows has no file."""
    files: list[str] = field(default_factory=list)
    """Names of the files, where they do not follow from `part_rows`: of sinks, which choose their suffix, those that
    there are; in stores, where nothing is renamed, one of each part of a view, empty if it has no file."""
    divided: int = 0
    """Of views: keys are in part `stable_hash(key) % divided`, also where the last parts have no rows and are not in
    `part_rows`. 0: an earlier heronpy did not say."""
    version: str = ""
    """Names its directory; empty: the batch's does, with which it was computed."""

    def holding(self, hashed: int) -> list[int]:
        """The parts of a view with rows that may have a key, by its stable hash."""
        if not self.divided:
            return [index for index, rows in enumerate(self.part_rows) if rows]
        index = hashed % self.divided
        return [index] if index < len(self.part_rows) and self.part_rows[index] else []

    def file_of(self, index: int) -> str:
        """The name of a part of a view that has rows."""
        return self.files[index] if self.files else part_name(index)

    def names(self) -> list[str]:
        """Of all files that there are."""
        return [name for name in self.files if name] or [part_name(i) for i, rows in enumerate(self.part_rows) if rows]


@dataclass
class Batch:
    """One batch id that is done."""

    version: str
    """Names its directories."""
    fingerprint: str
    """Of the input that it was computed from; another one means that it must be computed again."""
    direct: str = ""
    """Of the part of it that outputs follow from that are not behind reductions, and what those keep. If it is as it
    was, only what is behind reductions is computed again. Empty: it is not known."""
    passed_on: str = ""
    """What fingerprints of later batches follow from, if not from this one: late data have changed it, or will, and of
    those only the ones with other results."""
    elements: int = 0
    """Elements of this batch in the input, without duplicates."""
    duplicates: int = 0
    """Elements dropped because another one had the same id."""
    dead_letters: int = 0
    """Elements that were set aside because user code raised."""
    refused: int = 0
    """Of these, those that reductions have set aside, or what is behind them."""
    damaged: str = ""
    """What of its input could not be read, where that was accepted; empty: nothing."""
    finished_at_s: float = 0.0
    took_s: float = 0.0
    """The Spark job that computed it, maybe with others."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Of what it was computed from, this batch's own part, by archive: see `Archive.fingerprint`."""
    archives: dict[str, str] = field(default_factory=dict)
    """What those are called that `inputs` names by their stages: these may be numbers, which others have later."""
    files: dict[str, list[str]] = field(default_factory=dict, compare=False)
    """What names the files that these were, by archive, ascending: see `inputs.named`. Without others no late rows have
    come; with all of them nothing is gone. Empty: an earlier heronpy did not say."""
    views: dict[str, Parts] = field(default_factory=dict)
    monoids: dict[str, str] = field(default_factory=dict)
    """What each view was merged with: values of different monoids cannot be merged."""
    sinks: dict[str, Parts] = field(default_factory=dict)
    windows: dict[str, str] | None = None
    """In what windows the results of each output were made, of those that have any, by the output's folder; None: an
    earlier heronpy did not say."""

    def version_of(self, parts: Parts) -> str:
        """Names the directory of one of its outputs."""
        return parts.version or self.version

    def folders(self, batch: int) -> list[str]:
        """Of its outputs, below the job's; `batch` is its id."""
        return [
            f"{kind}/{output}/batch={batch}/{self.version_of(parts)}"
            for kind, outputs in (("views", self.views), ("sinks", self.sinks))
            for output, parts in outputs.items()
        ]

    @property
    def rows(self) -> int:
        """Of all views that somebody else than runs reads, see `partials`."""
        return sum(parts.rows for view, parts in self.views.items() if not view.startswith(KEPT))


@dataclass
class Seen:
    """What a run has found of a batch in an archive. As long as its folder is listed so, no footer is read again."""

    listing: str
    """Names, sizes and stamps of the files."""
    fingerprint: str
    """Of those that can be read: see `Archive.fingerprint`."""
    files: int = 0
    bytes: int = 0
    unreadable: int = 0
    """Files whose footers are damaged: they are looked at again by each run."""

    @property
    def rows(self) -> int:
        """How many there are in the files."""
        return int(self.fingerprint.split(":")[1])


@dataclass
class Tier:
    """A view's batches in a range, rolled up into one: see `rollup`."""

    version: str
    after: int | None
    """The range begins after this batch; None: at the beginning."""
    upto: int
    """The last batch in it. When any in the range is replaced, or one is added, the tier no longer counts."""
    level: int
    """How many times what is in it has been merged, at least 1."""
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        self.parts.divided = len(self.parts.part_rows)  # it has all of them

    def __contains__(self, batch: object) -> bool:
        return isinstance(batch, int) and (self.after is None or batch > self.after) and batch <= self.upto


def level_of(batches: int) -> int:
    """Of a tier that was made of so many batches at once."""
    level = 1
    while batches >= TIER_BATCHES * TIER_TIERS**level:
        level += 1
    return level
