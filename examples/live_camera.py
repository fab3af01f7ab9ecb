"""Ask while a camera runs: frames are pushed as they come, a question is answered at any moment.

    python examples/live_camera.py [SOURCE --query IMAGE --box X,Y,W,H] [--seconds 60]

SOURCE is whatever OpenCV opens: a number for a webcam, an RTSP address, a file (default: the demo clip).
IMAGE shows the object; without --box it is taken whole. In the demo clip the default is a teddy bear.
"""

import argparse
import itertools
import time
from pathlib import Path

import cv2

from egohieraloc import Box, Localizer, Query, demo

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("source", nargs="?", default=str(demo.CLIP))
parser.add_argument("--query", type=Path, help="an image that shows the object")
parser.add_argument("--box", help="where it is in the image: x,y,w,h")
parser.add_argument("--seconds", type=float, default=60.0)
options = parser.parse_args()

if options.query:
    box = Box.from_xywh(*map(float, options.box.split(","))) if options.box else None  # None: the whole image
    query = Query.from_image(options.query, box=box)
elif options.source == str(demo.CLIP):
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
else:
    parser.error("give --query IMAGE, and --box X,Y,W,H unless the object fills it")
camera = cv2.VideoCapture(int(options.source) if options.source.isdigit() else options.source)
if not camera.isOpened():
    raise SystemExit(f"Cannot open {options.source}.")
is_file = camera.get(cv2.CAP_PROP_FRAME_COUNT) > 0  # a file has a clock of its own
started_s = time.monotonic()
localizer = Localizer.from_pretrained()

with localizer.live(fps=5) as live:  # frames that come faster are passed over
    for number in itertools.count():
        there, bgr = camera.read()
        time_s = camera.get(cv2.CAP_PROP_POS_MSEC) / 1000 if is_file else time.monotonic() - started_s
        if not there or time_s > options.seconds:
            break
        live.add(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), time_s)
        if number and number % 300 == 0:
            print(f"{time_s:5.1f} s: {live.ask(query).summary}")
    print(f"At the end: {live.ask(query).summary}")
