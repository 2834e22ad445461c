"""The parts of an update that decide, each of which is tested alone."""

from heronpy.submit._code import misfits_of
from heronpy.submit._update_code import CodeHealth

__all__ = ["CodeHealth", "misfits_of"]
