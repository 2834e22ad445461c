"""The Tracker: a REST API over everything that runs, and the web UI."""
