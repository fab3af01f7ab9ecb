"""Does a second and third reference image help? Held-out objects asked for with 1, 2, 3, ... query views.

    python benchmarks/several_views.py --data DIR --clips DIR [--model NAME] [--questions 640] [--views 3]

The questions and clips are those of hard_heldout.py. The further views show the object from the side farthest
from the views before, on another ground and in another light, as somebody would photograph it; they do not
know the clip. Success by number of views, and the paired difference to one view, with 95 % intervals.
Clips are composed on the processor, whatever --device says: each device draws other objects from the same
seed. Give it a folder of clips of its own, one for each number of questions.
"""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path

from egohieraloc.files import write_json
from egohieraloc.query import Query
from figures import Outcome, outcome, print_outcomes
from hard_clips import FRAME_PX, Difficulty, further_views, hard_clips
from hard_heldout import groups_of, questions
from options import answer_options
from refusal import answering_localizer, print_differences, print_rows, rows_by_group, to_json


def main() -> None:
    parser = answer_options(__doc__)
    parser.add_argument("--clips", type=Path, required=True, help="composed clips are kept here")
    parser.add_argument("--questions", type=int, default=640, help="of a round, a multiple of 16")
    parser.add_argument("--every", type=int, default=1, help="ask every n-th of them")
    parser.add_argument("--frame-px", type=int, default=FRAME_PX, help="448: faster")
    parser.add_argument("--rounds", type=int, default=1, help="each with clips of its own")
    parser.add_argument("--views", type=int, default=3, help="at most so many, up to the sides of an object")
    parser.add_argument("--workers", type=int, default=2, help="processes that compose clips")
    options = parser.parse_args()
    counts = range(1, options.views + 1)
    outcomes: dict[int, list[Outcome]] = {count: [] for count in counts}
    difficulties: list[Difficulty] = []
    with tempfile.TemporaryDirectory() as scratch:
        localizer, threshold = answering_localizer(
            options.model,
            device=options.device,
            engine=options.engine,
            settings=options.settings,
            cache=Path(scratch),
        )
        for seed in range(options.rounds):
            started = time.perf_counter()
            size = options.questions
            halves = hard_clips(
                options.data,
                options.clips,
                size,
                seed=seed,
                frame_px=options.frame_px,
                workers=options.workers,
            )
            further = further_views(options.data, size, options.views - 1, seed=seed)
            asked = islice(questions(localizer.predictor, halves, seed=seed), None, None, options.every)
            for question in asked:
                views = [question.clip.query, *further[question.side][question.number]]
                difficulties.append(question.clip.difficulty)
                for count in counts:
                    found = localizer.ask(Query.of_views(*views[:count]), question.video)
                    outcomes[count].append(outcome(question.name, question.truth, found))
            print(f"round {seed}: {time.perf_counter() - started:.0f} s", flush=True)
    groups = groups_of(difficulties)
    rows = {count: rows_by_group(outcomes[count], groups, threshold) for count in counts}
    for count, table in rows.items():
        print(f"\n{named(count)}")
        print_rows(table)
        if options.queries:
            print_outcomes(outcomes[count])
    for count in counts[1:]:
        print_differences(named(count), outcomes[count], outcomes[1], groups)
    if options.json:
        write_json(options.json, {named(count): to_json(table) for count, table in rows.items()})


def named(count: int) -> str:
    return f"{count} view{'s' * (count > 1)}"


if __name__ == "__main__":
    main()
