"""Rows of images: the right boxes at the right place, and times that are true."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from figure_world import FPS, FRAMES, HEIGHT, SEEN, WIDTH, make_video, make_vq2d, result, track, true_box
from matplotlib.figure import Figure

from egohieraloc.data.base import Track
from egohieraloc.errors import DataError, OutputError
from egohieraloc.figures import rows, sources, style
from egohieraloc.figures.sources import NamedTrack, Row
from egohieraloc.images import read_image
from egohieraloc.query import Query
from egohieraloc.types import Box
from egohieraloc.video.reader import Video


@pytest.fixture
def row(tmp_path: Path) -> Row:
    video = Video.open(make_video(tmp_path))
    return Row(
        "square",
        Query(np.zeros((40, 60, 3), np.uint8), Box(20, 10, 40, 30)),
        video,
        FPS,
        2.4,
        track(SEEN),
        (NamedTrack("ours", track(range(5, 9), shift=2)), NamedTrack("other", Track.empty())),
    )


def boxes_in(axes) -> list[tuple[str, tuple[float, ...]]]:
    """Edge colour and corners of what was drawn, halos left out."""
    return [
        (
            matplotlib.colors.to_hex(p.get_edgecolor()),
            (*p.get_xy(), p.get_x() + p.get_width(), p.get_y() + p.get_height()),
        )
        for p in axes.patches
        if p.get_edgecolor()[3] == 1
    ]


def test_a_frame_shows_every_box_there_is_at_it(row: Row) -> None:
    both, one = Figure().subplots(1, 2)
    rows.show_frame(both, row, 6, 1.0)
    x1, y1, x2, y2 = true_box(6)
    assert boxes_in(both) == [(style.TRUTH, (x1, y1, x2, y2)), (style.PALETTE[0], (x1 + 2, y1, x2 + 2, y2))]
    assert len(both.patches) == 4  # each with a halo
    assert both.get_xlabel() == "1.2 s"
    rows.show_frame(one, row, 4, 1.0)
    assert [colour for colour, _ in boxes_in(one)] == [style.TRUTH]


def test_zoom_is_a_part_of_the_frame_around_the_boxes(row: Row) -> None:
    near, edge, none = Figure().subplots(1, 3)
    rows.show_frame(near, row, 6, 0.5)
    assert np.ptp(near.get_xlim()) == WIDTH / 2
    assert near.get_xlim()[0] == (true_box(6)[0] + 1 + 8) - WIDTH / 4  # between the two boxes
    rows.show_frame(edge, row, 9, 0.9)
    assert edge.get_xlim() == pytest.approx((0.1 * WIDTH, WIDTH))  # not beyond the frame
    rows.show_frame(none, row, 0, 0.5)
    assert none.get_xlim() == (WIDTH / 4, 3 * WIDTH / 4)
    assert none.get_ylim() == (3 * HEIGHT / 4, HEIGHT / 4)


def test_the_timeline_shades_the_truth_and_bars_the_answers(row: Row, tmp_path: Path) -> None:
    axes, with_curve = Figure().subplots(1, 2)
    rows.show_timeline(axes, row)
    shade = axes.patches[0]
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((0.8, 2.0))
    bar = axes.collections[0].get_paths()[0].get_extents()
    assert (bar.x0, bar.x1) == pytest.approx((1.0, 1.8))
    assert axes.get_xlim() == (0, 2.4)
    assert not axes.lines
    known = sources.result_row([("ours", result(tmp_path / "room"))])
    rows.show_timeline(with_curve, known, marked=[4])
    assert np.array_equal(with_curve.lines[0].get_ydata(), known.curve.smooth)
    assert with_curve.lines[1].get_ydata()[0] == 0.5


@pytest.mark.parametrize(
    ("frames", "runs"),
    [
        ([], []),
        ([7], [(7, 7)]),
        ([1, 2, 3, 8, 9], [(1, 3), (8, 9)]),
        ([0, 6, 12, 30, 36], [(0, 12), (30, 36)]),
    ],
)
def test_runs_of_a_track(frames: list[int], runs: list[tuple[int, int]]) -> None:
    assert rows.runs_of(Track.from_boxes(frames, [[0, 0, 1, 1]] * len(frames))) == runs


def test_frames_are_spread_over_the_truth_else_the_answer_else_the_video(row: Row) -> None:
    assert rows.frames_to_show(row, 3) == [4, 6, 9]
    without = sources.Row(row.title, row.query, row.video, FPS, 2.4, None, row.answers)
    assert rows.frames_to_show(without, 9) == [5, 6, 7, 8]
    nothing = sources.Row(row.title, row.query, row.video, FPS, 2.4, None, row.answers[1:])
    assert rows.frames_to_show(nothing, 2) == [0, 11]
    assert style.evenly([3, 4, 5], 1) == [4]


def test_the_query_is_cut_with_a_margin_inside_its_image(row: Row) -> None:
    assert rows.query_image(row.query).shape == (30, 30, 3)
    whole = Query(np.zeros((40, 60, 3), np.uint8), Box(0, 0, 60, 40))
    assert rows.query_image(whole).shape == (40, 60, 3)


def test_figures_are_written_by_their_ending_and_leave_no_trace(row: Row, tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    rows.draw_qualitative(tmp_path / "f" / "a.PNG", [row, row], frames=9)
    rows.draw_qualitative(tmp_path / "f" / "a.pdf", [row], frames=2, zoom=0.5, width_in=3.4)
    rows.draw_failures(tmp_path / "f" / "b.svg", [(row, 0.25)])
    assert dict(matplotlib.rcParams) == before
    assert read_image(tmp_path / "f" / "a.PNG").shape[1] == style.PAGE_IN * style.DPI
    printed = (tmp_path / "f" / "a.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert b"/FontFile2" in printed  # text is text, in TrueType
    assert b"/Type3" not in printed
    assert "stIoU 0.25" in (tmp_path / "f" / "b.svg").read_text()
    for name in ("a.tiff", "a"):
        with pytest.raises(OutputError, match=r"Figures are written as \.pdf, \.png, \.svg, got"):
            rows.draw_qualitative(tmp_path / "f" / name, [row])
    with pytest.raises(DataError, match="no query was chosen"):
        rows.draw_qualitative(tmp_path / "f" / "c.png", [])
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["a.PNG", "a.pdf", "b.svg"]


def test_failures_say_what_is_missing(row: Row, tmp_path: Path) -> None:
    lost = Row(row.title, row.query, row.video, FPS, 2.4, row.truth, row.answers[1:])
    rows.draw_failures(tmp_path / "lost.svg", [(lost, 0.0)])
    assert "not found" in (tmp_path / "lost.svg").read_text()


def test_boxes_of_a_larger_annotation_are_shown_on_the_smaller_video(tmp_path: Path) -> None:
    make_video(tmp_path)
    queries = sources.read_benchmark("vq2d", make_vq2d(tmp_path), tmp_path)
    question = sources.pick(queries.items, 0)
    methods = [("ours", result(tmp_path / "room", shift=3)), ("other", {question.key: track(SEEN, scale=2)})]
    shown = sources.benchmark_row(question, methods)
    assert np.array_equal(shown.truth.boxes_xyxy, track(SEEN).boxes_xyxy)
    assert np.array_equal(shown.answers[0].track.boxes_xyxy, track(SEEN, shift=3).boxes_xyxy)
    assert np.array_equal(shown.answers[1].track.boxes_xyxy, track(SEEN).boxes_xyxy)
    assert shown.query.box.xyxy == true_box(5)
    assert shown.query.crop.reshape(-1, 3).min(0).tolist() == [220, 40, 40]  # of the frame it was cut from
    assert shown.until_s == 2.2
    assert shown.curve is methods[0][1].curve
    assert sources.benchmark_row(question, methods[1:]).curve is None
    assert shown.image(FRAMES + 5).index == FRAMES - 1
    with pytest.raises(DataError, match="There is no query 2: the annotations have 2, from 0"):
        sources.pick(queries.items, 2)


def test_answers_to_different_queries_do_not_share_a_row(tmp_path: Path) -> None:
    first = result(make_video(tmp_path))
    second = result(tmp_path / "room", query=Query(first.query.image, Box(0, 0, 9, 9)))
    with pytest.raises(DataError, match="'b' answers another query than 'a'"):
        sources.result_row([("a", first), ("b", second)])


def test_answers_are_laid_on_the_grid_of_the_annotation(tmp_path: Path) -> None:
    assert sources.result_track(result(tmp_path), 10.0).frames.tolist() == [8, 10, 12, 14, 16, 18]


def test_a_large_image_keeps_the_coordinates_of_its_pixels() -> None:
    axes = Figure().subplots()
    style.show_image(axes, np.zeros((900, 1800, 3), np.uint8))
    [image] = axes.images
    assert list(image.get_extent()) == [0, 1800, 900, 0]
    assert image.get_array().shape == (320, style.MAX_SIDE_PX, 3)
