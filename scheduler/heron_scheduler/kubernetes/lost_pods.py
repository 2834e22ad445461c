"""Removes pods of lost nodes from a namespace: `python -m heron_scheduler.kubernetes.lost_pods [--namespace NAME]`.

Run one per namespace, as a Deployment (the Helm chart has it): so that a topology whose node is gone runs again on
another one without an operator.
"""

from __future__ import annotations

import argparse
import logging
import time

from heron_scheduler.kubernetes._lost_pods import release_lost_pods
from heronpy.errors import HeronError
from heronpy.kubernetes import Api, load_access

log = logging.getLogger(__name__)

SELECTOR = "app=heron,app.kubernetes.io/managed-by=heron"
INTERVAL_S = 2.0


def main() -> None:
    """Until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m heron_scheduler.kubernetes.lost_pods")
    parser.add_argument("--namespace", default="", help="the namespace; by default that of the context, or of this pod")
    parser.add_argument("--interval", type=float, default=INTERVAL_S, help="refresh interval in seconds (default: 2)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    access = load_access()
    api, namespace = Api(access), args.namespace or access.namespace
    log.info("removing pods of lost nodes from namespace %s", namespace)
    while True:
        try:
            release_lost_pods(api, namespace, SELECTOR)
        except HeronError as e:
            log.error("%s", e)
        time.sleep(args.interval)


if __name__ == "__main__":
    main()
