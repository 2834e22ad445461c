"""The parts of a Checkpoint Manager, for tests."""

from heronpy.ckptmgr._calls import StorageCalls
from heronpy.ckptmgr._catalog import Catalog, Merge, Wanted
from heronpy.ckptmgr._merge_hold import HOLD_MAX_S, MergeHold
from heronpy.ckptmgr._pieces import Pieces
from heronpy.ckptmgr._upload import PIECE_BYTES

__all__ = ["HOLD_MAX_S", "PIECE_BYTES", "Catalog", "Merge", "MergeHold", "Pieces", "StorageCalls", "Wanted"]
