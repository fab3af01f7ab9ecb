"""Where was this object last seen? With no arguments, in the bundled demo clip.

python examples/last_seen.py [VIDEO --image FRAME.jpg --box X,Y,W,H] [--out FOLDER]
"""

import argparse
from pathlib import Path

from egohieraloc import EgoHieraLocError, Localizer, NotFound, Query, demo, save_report
from egohieraloc.query import parse_box

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("video", nargs="?", type=Path, default=demo.CLIP)
parser.add_argument("--image", type=Path, default=demo.QUERY, help="an image that shows the object")
parser.add_argument("--box", help="where it is in the image: x,y,w,h")
parser.add_argument("--out", type=Path, help="folder for a report")
options = parser.parse_args()

box = demo.load_truth().query_box if options.image == demo.QUERY else None  # None: the whole image
try:
    if options.box:
        box = parse_box(options.box)
    query = Query.from_image(options.image, box=box)
    result = Localizer.from_pretrained().locate(query, options.video)
except EgoHieraLocError as error:
    parser.error(str(error))  # ends with 2
print(result.summary)

if isinstance(result.track, NotFound):
    raise SystemExit(3)  # as the command line does
print(f"{len(result.track)} samples from {result.track.start_s:.1f} s to {result.track.end_s:.1f} s")
for prediction in result.track:
    x1, y1, x2, y2 = prediction.box
    print(
        f"{prediction.time_s:6.2f} s  {x1:6.1f} {y1:6.1f} {x2:6.1f} {y2:6.1f}  score {prediction.score:.2f}"
    )
if options.out:
    print(f"See {save_report(result, options.out)}")
