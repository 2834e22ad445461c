"""The Stream Manager: routes batches between instances and peers. `python -m heronpy.stmgr --dir D --container N`."""
