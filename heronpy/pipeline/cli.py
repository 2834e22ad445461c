"""The command `heron pipeline …`; `python -m heronpy.pipeline …` is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from heronpy.cli.commands import Verbs


class pipeline(Verbs):  # named as the verb
    """Run the batch side of a streamlet program on Spark, read its views, compare them with the live ones.

    JOB is a .py file or a dotted module that calls Runner().run(...), with the script's own arguments behind it; or the
    name of a job that was loaded like that before. Options of the verb stand before a file or a module.
    """

    verbs: ClassVar[Mapping[str, str]] = {
        "run": "heronpy.pipeline._cli_run",
        "backfill": "heronpy.pipeline._cli_run",
        "bootstrap": "heronpy.pipeline._cli_run",
        "compact": "heronpy.pipeline._cli_run",
        "vacuum": "heronpy.pipeline._cli_run",
        "status": "heronpy.pipeline._cli_show",
        "query": "heronpy.pipeline._cli_show",
        "export": "heronpy.pipeline._cli_show",
        "reconcile": "heronpy.pipeline._cli_show",
        "script": "heronpy.pipeline._cli_show",
    }
    hint = ": see `heron pipeline --help`"


__all__ = ["pipeline"]
