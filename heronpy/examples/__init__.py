"""Topologies to read, to run and to copy from.

- `heronpy.examples.word_count`: counts the words of text files; exact, at least once.
- `heronpy.examples.exactly_once_word_count`: the same, and each word once whatever dies.
- `heronpy.examples.archived_word_counts`: what Spark has counted in old files, for that topology to begin with.
- `heronpy.examples.random_word_count`: the Heron paper's benchmark topology.
- `heronpy.examples.rtac`: active users per event and second, from a file of client events.

Each module's docstring has the command that runs it. `python -m heronpy.examples.demo` runs the first one from
submission to a verified result.
"""
