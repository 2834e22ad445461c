"""Schedulers whose containers are run by a driver: a process on the cluster's side that does what it is ordered to.

Commands write what is to run into a node of the state manager (`Orders`), the driver follows it and reports in another
one (`DriverReport`): so any machine can command the topology. Such a scheduler derives from `DrivenScheduler`; its
driver uses `OrdersFollower`, `DriverSeat` and `decide`.
"""

from heron_scheduler.driven._driver import DriverSeat, OrdersFollower
from heron_scheduler.driven._orders import DriverReport, Order, Orders
from heron_scheduler.driven._runs import Action, Run, decide, next_run
from heron_scheduler.driven._scheduler import POLL_S, DrivenScheduler

__all__ = [
    "POLL_S",
    "Action",
    "DrivenScheduler",
    "DriverReport",
    "DriverSeat",
    "Order",
    "Orders",
    "OrdersFollower",
    "Run",
    "decide",
    "next_run",
]
