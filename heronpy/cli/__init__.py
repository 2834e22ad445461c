"""The command line: `heron VERB …`. Thin: every verb parses, calls `heronpy.submit` and prints."""

from heronpy.cli._app import main, run

__all__ = ["main", "run"]
