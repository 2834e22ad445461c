"""The batch twin: a streamlet program as a Spark job, and reads that merge both.

Needs the extra `spark`: pip install 'heronpy[spark]', and Java 17 or newer.
"""
