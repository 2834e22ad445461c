"""Limits of instances: RAM and CPU by cgroups, where one can be made, or RAM alone by looking at it.

`Limiter` is what an executor uses; `remove_cgroups` removes what an executor that was killed has left.
"""

from heronpy.limits._cgroups import Cgroups, Limits, hierarchies, remove_cgroups
from heronpy.limits._limiter import Limiter, Overrun

__all__ = ["Cgroups", "Limiter", "Limits", "Overrun", "hierarchies", "remove_cgroups"]
