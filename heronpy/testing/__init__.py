"""For your tests: real topologies on this machine, and waiting without sleeping.

def test_every_word_is_counted():
    with LocalCluster() as cluster:
        words = cluster.submit(WordCount).wait_running()
        eventually_sync(lambda: check(words.status()))
"""

from heronpy.testing._cluster import LocalCluster, TopologyHandle
from heronpy.testing._eventually import eventually, eventually_sync
from heronpy.testing._monoids import check_monoid
from heronpy.testing._scrape import scrape
from heronpy.testing._simulator import Simulator, simulate

__all__ = [
    "LocalCluster",
    "Simulator",
    "TopologyHandle",
    "check_monoid",
    "eventually",
    "eventually_sync",
    "scrape",
    "simulate",
]
