"""The Checkpoint Manager of a container: stores, reads, merges and deletes checkpoints for the container's processes.

`heronpy.ckptmgr.client` is how they talk to it, `heronpy.ckptmgr.service` what it does; run as
`python -m heronpy.ckptmgr --dir <topology directory> --container <n>`, with checkpoints only. Instances give it
their snapshots over a unix socket, so that storages, their clients and their waiting are in no interpreter that
executes tuples. That of container 0 also makes manifests, merges and deletes, as the Topology Master asks it to.
"""
