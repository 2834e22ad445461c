"""What effectively once promises of real processes, each measured by a command: figure, target, verdict.

`python -m heronpy.bench.rows recovery`, or `make bench-state ROW=recovery`. Tasks import this package.
"""
