"""A process that compacts the archive of a job, and prints each line of progress.

python archive_compacting.py <directory of the job>
"""

from __future__ import annotations

import sys
from pathlib import Path

from heronpy.pipeline.compaction import compact
from heronpy.pipeline.job import Job
from heronpy.streamlet import Builder, Config, Runner
from heronpy.streamlet.runner import captured

BATCH_MS = 1000


def job(directory: Path) -> Job:
    """A job with the archive `events`."""
    builder = Builder()
    builder.new_source(lambda: None).archive().log()
    config = Config()
    config.set_pipeline(directory, batch_length=BATCH_MS / 1000)
    with captured() as programs:
        Runner().run("compacting", config, builder)
    return Job.of(programs[0])


if __name__ == "__main__":
    compact(job(Path(sys.argv[1])), master="local[2]", min_files=2, progress=lambda line: print(line, flush=True))
