"""Times for people: `0:07.2`, wherever one is shown; both `7.2` and `0:07.2` where one is given."""

from __future__ import annotations

import math


def clock(time_s: float) -> str:
    """Minutes and seconds, and hours where there are any: `0:07.2`, `1:02:07.2`."""
    tenths = math.floor(abs(time_s) * 10 + 0.5)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    start = f"{hours}:{minutes:02d}" if hours else f"{minutes}"
    return f"{'-' if time_s < 0 and tenths else ''}{start}:{rest // 10:02d}.{rest % 10}"


def parse_time(text: str) -> float:
    """Seconds from `7.2`, `7.2s`, `0:07.2` or `1:02:07.2`; a ValueError says what was wanted."""
    parts = text.strip().lower().removesuffix("s").strip().split(":")
    wrong = f"a time is written in seconds (8.6) or as minutes:seconds (0:08.6), got '{text}'"
    if not 1 <= len(parts) <= 3 or any(part != part.strip() or not part for part in parts):
        raise ValueError(wrong)
    try:
        values = [*(float(int(part)) for part in parts[:-1]), float(parts[-1])]
    except (ValueError, OverflowError) as error:
        raise ValueError(wrong) from error
    if not math.isfinite(values[-1]) or (len(values) > 1 and not all(0 <= v < 60 for v in values[1:])):
        raise ValueError(wrong)
    if len(values) > 1 and values[0] < 0:
        raise ValueError(wrong)
    seconds = 0.0
    for value in values:
        seconds = 60 * seconds + value
    return seconds
