"""A small client of the Kubernetes API: what a scheduler and a state manager need of it, over HTTPS.

`load_access` finds the API server and the credentials as kubectl does (a kubeconfig, or the service account of the pod
that this process runs in); `Api` sends requests and follows changes. Every call has a deadline; errors are
`KubernetesError`, one line each.
"""

# Why not the official package `kubernetes`: the processes of a topology open a state manager when they start, and it
# costs each of them over half a second of CPU and some 50 MB, for a handful of verbs on four kinds of objects. What is
# here follows the API's conventions (v1 objects, optimistic concurrency, watches), which do not change within v1.

from heronpy.kubernetes._access import Access, load_access
from heronpy.kubernetes._api import Answer, Api, KubernetesError
from heronpy.kubernetes._watching import Stream

__all__ = ["Access", "Answer", "Api", "KubernetesError", "Stream", "load_access"]
