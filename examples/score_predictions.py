"""Score a VQ2D prediction file, anybody's, as Ego4D's own code does.

    python examples/score_predictions.py [VQ_VAL.json PREDICTIONS]

PREDICTIONS is a challenge submission or a file of `egohieraloc eval`. Without arguments our own answer about
the demo clip is scored against its truth.
"""

import sys

from egohieraloc import Localizer, Query, ResponseTrack, demo
from egohieraloc.data.base import Track
from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.evaluation import vq2d
from egohieraloc.evaluation.predictions import read_vq2d_predictions

if len(sys.argv) > 2:
    queries = [query for clip in read_vq2d(sys.argv[1]) for query in clip.queries]
    answers = read_vq2d_predictions(sys.argv[2], queries)
    scores = vq2d.report_vq2d(queries, answers).own_score
else:
    truth = demo.load_truth()
    first, last = truth.appearances[-1]
    boxes = [box.xyxy for box in truth.boxes[first : last + 1] if box]
    true_track = Track.from_boxes(range(first, last + 1), boxes)
    found = (
        Localizer.from_pretrained().locate(Query.from_image(demo.QUERY, box=truth.query_box), demo.CLIP).track
    )
    answer = Track.empty()
    if isinstance(found, ResponseTrack):
        answer = Track.from_boxes([p.sample for p in found], [p.box.xyxy for p in found])
    scores = vq2d.score(vq2d.measure([(true_track, answer, found.score)]))

for name, value in scores.measures.items():
    print(f"{name:12} {value:.3f}")
