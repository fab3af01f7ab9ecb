"""The options that benchmarks share, and the localizer they describe."""

from __future__ import annotations

import argparse
from pathlib import Path

from egohieraloc.localize import Localizer
from egohieraloc.video.canvas import Size


def answer_options(description: str | None) -> argparse.ArgumentParser:
    """Data, model, device, settings, and where the figures go."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device")
    parser.add_argument("--engine", help="torch or openvino")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="as for `locate`")
    parser.add_argument("--queries", action="store_true", help="print the outcome of each query")
    parser.add_argument("--json", type=Path)
    return parser


def localizer_of(options: argparse.Namespace, cache: Path) -> Localizer:
    """With the model, device, engine and settings that were asked for."""
    return Localizer.from_pretrained(
        options.model,
        device=options.device,
        engine=options.engine,
        settings=options.settings,
        cache=cache,
    )


def frame_size(text: str) -> Size:
    """Width and height, written as 1280x720."""
    width, _, height = text.partition("x")
    return int(width), int(height)
