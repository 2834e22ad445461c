"""Parts of commands that are tested alone."""

from heronpy.submit._code import misfits_of
from heronpy.submit._control import change_plan
from heronpy.submit._secrets import renew_secrets
from heronpy.submit._update_code import CodeHealth

__all__ = ["CodeHealth", "change_plan", "misfits_of", "renew_secrets"]
