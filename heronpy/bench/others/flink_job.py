"""The keyed count in PyFlink, with checkpoints. Run by the interpreter of an environment that has it.

python flink_job.py KEYS INTERVAL_S DIRECTORY: goes on until it is ended; the number of words is in DIRECTORY/count.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor

REPORT = 10_000


class Count(KeyedProcessFunction):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.number = 0

    def process_element(self, value: str, context: KeyedProcessFunction.Context) -> Iterator[int]:
        self.state.update((self.state.value() or 0) + 1)
        self.number += 1
        if self.number % REPORT == 0:
            path = Path(self.directory) / "count"
            path.with_suffix(".new").write_text(str(self.number))
            os.replace(path.with_suffix(".new"), path)
        yield from ()


def main(keys: int, interval_s: float, directory: Path) -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_python_executable(sys.executable)
    environment.set_parallelism(1)
    environment.enable_checkpointing(int(interval_s * 1000))
    numbers = environment.from_source(
        NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "numbers", type_info=Types.LONG()
    )
    words = numbers.map(lambda number: f"word-{int(random.random() * keys)}", output_type=Types.STRING())
    words.key_by(lambda word: word, key_type=Types.STRING()).process(
        Count(str(directory)), output_type=Types.LONG()
    ).print()
    environment.execute("count")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
