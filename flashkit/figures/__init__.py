"""The course's pictures: scenes computed from the oracles' traces, drawn by one player, with a PNG that stands in."""

from flashkit.figures.byte_walk import byte_walk
from flashkit.figures.example import example
from flashkit.figures.loop_orders import loop_orders
from flashkit.figures.roofline import roofline
from flashkit.figures.row_state import row_state
from flashkit.figures.tile_walk import tile_walk

PICTURES = {picture.__name__: picture for picture in (byte_walk, roofline, tile_walk, loop_orders, row_state)}

__all__ = ["PICTURES", "example", *PICTURES]
