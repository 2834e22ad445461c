"""Lines of text files, as a generator. `heronpy.connectors.TextFile` remembers its position and reads faster."""

from heronpy.connectors.textfiles.textfilesgenerator import TextFileGenerator

__all__ = ["TextFileGenerator"]
