"""The course's pictures: scenes computed from the oracles' traces, drawn by one player, with a PNG that stands in."""

from flashkit.figures.byte_walk import byte_walk
from flashkit.figures.example import example
from flashkit.figures.gantt import gantt
from flashkit.figures.gradient_paths import gradient_paths
from flashkit.figures.loop_orders import loop_orders
from flashkit.figures.loop_ownership import loop_ownership
from flashkit.figures.online_softmax import online_softmax
from flashkit.figures.register_budget import register_budget
from flashkit.figures.ring_fill import ring_fill
from flashkit.figures.roofline import roofline
from flashkit.figures.row_state import row_state
from flashkit.figures.sm_timeline import sm_timeline
from flashkit.figures.tile_budgets import tile_budgets
from flashkit.figures.tile_walk import tile_walk
from flashkit.figures.warp_split import warp_split
from flashkit.figures.watch import watch
from flashkit.figures.what_binds import what_binds

PICTURES = {  # by chapter
    "byte_walk": byte_walk,
    "roofline": roofline,
    "online_softmax": online_softmax,
    "tile_walk": tile_walk,
    "loop_orders": loop_orders,
    "row_state": row_state,
    "gradient_paths": gradient_paths,
    "loop_ownership": loop_ownership,
    "tile_budgets": tile_budgets,
    "what_binds": what_binds,
    "sm_timeline": sm_timeline,
    "warp_split": warp_split,
    "gantt": gantt,
    "ring_fill": ring_fill,
    "register_budget": register_budget,
}

__all__ = ["PICTURES", "example", "watch", *PICTURES]
