"""The keyed count in other engines, each in an environment of its own: nothing here is imported by heronpy."""
