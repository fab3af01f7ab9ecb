"""What stands where in the room. Metres; x east, y north, z up."""

from __future__ import annotations

from typing import NamedTuple

WIDTH, DEPTH, HEIGHT = 6.4, 5.2, 2.6
TARGET = "teddyBear"  # the first one placed is looked for, others only resemble it


class Place(NamedTuple):
    model: str
    x: float
    y: float
    z: float  # of its base
    degrees: float  # 0 faces north, 90 west
    tint: tuple[float, float, float] = (1, 1, 1)
    scale: float = 1.0


PLACES = [
    Place("winchesterSofa", 1.95, 0.55, 0, 0),
    Place("winchesterArmchair", 0.75, 1.75, 0, -70),
    Place("bedsideTable2", 3.55, 0.36, 0, 0),
    Place(TARGET, 3.55, 0.36, 0.454, 12),
    Place("ammoBox", 2.0, 1.75, 0, 4),
    Place("decorativePlant", 4.35, 0.45, 0, 40),
    Place("electricGuitar", 0.40, 0.42, 0, -40),
    Place("lbDesk", 0.45, 3.2, 0, -90),
    Place("desklamp", 0.3, 3.75, 0.723, 0),
    Place("headphones", 0.5, 3.35, 0.723, 35),
    Place("kalender", 0.35, 3.0, 0.723, -100),
    Place("chairWithCushion", 1.15, 3.1, 0, 75),
    Place("lowerCabinet", 0.9, 4.89, 0, 180),
    Place("drawersCabinet", 1.5, 4.89, 0, 180),
    Place("sinkCabinet", 2.1, 4.89, 0, 180),
    Place("lowerCabinet", 2.7, 4.89, 0, 180),
    Place("upperCabinet", 0.9, 4.99, 1.45, 180),
    Place("glassDoorCabinet", 1.5, 4.99, 1.45, 180),
    Place("upperCabinet", 2.7, 4.99, 1.45, 180),
    Place("highCabinet", 0.3, 4.89, 0, 180),
    Place("refrigerator", 3.55, 4.72, 0, 180),
    Place("kitchenaid", 0.85, 4.88, 0.885, 200),
    Place("coffeeBrewer", 1.35, 4.95, 0.885, 170),
    Place("bread", 1.62, 4.78, 0.885, 130),
    Place("tetrapak", 2.5, 4.95, 0.885, 160),
    Place("yogurtBottle", 2.63, 4.92, 0.885, 0),
    Place("plasticCup", 2.74, 4.80, 0.885, 0),
    Place("butter", 2.85, 4.80, 0.885, 30),
    Place("oakTable", 4.2, 3.55, 0, 0),
    Place("oakChair", 4.2, 2.65, 0, 180),
    Place("oakChair", 5.1, 3.55, 0, -90),
    Place("oakChair", 4.3, 4.45, 0, 10),
    Place("oakChair", 3.3, 3.75, 0, 95),
    Place("caffe_final", 3.95, 3.35, 0.741, 30),
    Place("cupcake", 4.35, 3.3, 0.741, 0),
    Place("cupcake", 4.45, 3.38, 0.741, 90),
    Place("orchids", 4.25, 3.7, 0.741, 20),
    Place("hotDog", 3.85, 3.7, 0.741, 60),
    Place("basketball", 3.05, 1.15, 0, 60),
    Place("slippers", 2.75, 1.95, 0, 150),
    Place("televisionCabinet", 6.05, 2.0, 0, 90),
    Place("cactus", 1.75, 1.7, 0.306, 0),
    Place("cardGame", 2.2, 1.8, 0.306, 20),
    Place("fireExtinguisher", 6.28, 0.5, 0.5, 90),
    Place("cuckooClock", 4.6, 5.11, 1.5, 180),
    Place("plant", 5.95, 4.75, 0, 0),
    Place("umbrellaFolded", 6.2, 0.95, 0, 0),
    Place("bootie", 5.75, 0.35, 0, 200),
    Place("lamp2", 3.2, 2.4, 1.95, 0),
    Place(TARGET, 0.72, 1.78, 0.44, -75, (0.42, 0.62, 1.0), 0.8),
    Place("caballito", 1.35, 2.55, 0, -30),
    Place("JapaneseLantern", 6.1, 1.5, 0.5, 0),
]
