"""Schedulers: what starts, moves and ends the containers of a topology."""
