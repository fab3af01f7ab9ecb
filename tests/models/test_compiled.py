"""OpenVINO beside torch: equal answers, and refusals where the file does not fit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
import zipfile
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from egohieraloc import Localizer, LocalizerConfig, Query, Video, demo
from egohieraloc.config import preset
from egohieraloc.errors import ConfigError, WeightsError
from egohieraloc.images import write_image
from egohieraloc.inference.chunks import STRETCH
from egohieraloc.inference.packing import unpack
from egohieraloc.inference.predict import Predictor
from egohieraloc.models import compiled, graphs
from egohieraloc.models.compiled import SUFFIX, CompiledDpm, read_parts
from egohieraloc.models.graphs import MOST_SHAPES, FrameGraph
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import (
    BothLooks,
    Calibration,
    Weights,
    find_weights,
    load_weights,
    save_weights,
)
from egohieraloc.settings import override
from egohieraloc.training.quantize import quantize
from egohieraloc.types import Box, ResponseTrack, Rgb

# Looked for, not imported: every worker collects this file, and one runs it.
pytestmark = pytest.mark.skipif(not (find_spec("openvino") and find_spec("nncf")), reason="needs both")

RANDOM = np.random.default_rng(0)


def images(count: int, size: int = 64) -> list[Rgb]:
    return [RANDOM.integers(0, 256, (size, size, 3), np.uint8) for _ in range(count)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """A small network with random weights, and its parts."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_weights(path, EgoHieraLocNet(preset("tiny")))
    quantize(path, images(2), path.with_suffix(SUFFIX))
    return load_weights(path)


def test_it_is_chosen_where_it_can_be(tiny: Weights) -> None:
    assert Predictor(tiny, device="cpu").engine == "openvino"
    assert Predictor(tiny, device="cpu", engine="torch").engine == "torch"
    assert Predictor(replace(tiny, parts=None), device="cpu").engine == "torch"


class AtOnce(Executor):
    """Does what is submitted before it returns."""

    def submit(self, function: Any, /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*given, **named))
        return future


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each graph that is compiled, whether it must be in full precision."""
    asked: list[bool] = []
    real = graphs.compile_model
    monkeypatch.setattr(graphs, "compiler", AtOnce)

    def compile_model(model: object, *, exact: bool = False, **options: object) -> object:
        asked.append(exact)
        return real(model, exact=exact, **options)

    for module in (graphs, compiled):
        monkeypatch.setattr(module, "compile_model", compile_model)
    return asked


def test_the_encoder_is_compiled_for_the_first_frame(tiny: Weights, compilations: list[bool]) -> None:
    """A question about a stored video does not wait for it."""
    predictor = Predictor(tiny, device="cpu")
    before = len(compilations)
    for count in (1, 3):
        predictor.encode(images(count, 224))
        assert len(compilations) == before + 1


def test_frames_as_large_as_the_querys_window_are_frames(tiny: Weights, compilations: list[bool]) -> None:
    """Stored features are what their key says; the query's are torch's."""
    size = tiny.network.config.query_sizes[0]
    small = tiny.with_settings(replace(tiny.network.config, input_size=size))
    predictors = [Predictor(small, device="cpu", engine=e) for e in ("torch", "openvino")]
    before = len(compilations)
    query = Query(images(1, size)[0], Box(10, 10, 50, 50))
    tokens = [predictor.tokens(predictor.prepare(query)) for predictor in predictors]
    np.testing.assert_array_equal(*tokens)
    assert len(compilations) == before
    predictors[1].encode(images(1, size))
    assert len(compilations) == before + 1


def test_a_question_compiles_nothing(tiny: Weights, compilations: list[bool]) -> None:
    """However many samples it decodes at a time; a query of three views has more tokens and does."""
    predictor = Predictor(tiny, device="cpu")
    letterbox = predictor.letterbox(160, 90)
    packed = predictor.encode([letterbox.apply(image[:90, :160]) for image in images(3, 160)])
    predictor.prepare_search(letterbox)
    one = Query(images(1, 96)[0], Box(20, 20, 70, 70))
    before = len(compilations)
    for query, more in ((one, 0), (replace(one, others=(one,)), 0), (replace(one, others=(one, one)), 1)):
        prepared = predictor.prepare(query)
        for count in (1, 3, 2):
            predictor.decode(prepared, packed[:count], predictor.start(prepared))
            assert len(compilations) == before + more


def test_the_first_question_compiles_nothing_more(
    tiny: Weights, compilations: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file and of a camera, whatever the shape of its frames; with a look back and without."""
    asked, searches = Localizer.ask, list[int]()

    def ask(self: Localizer, *given: Any, **options: Any) -> Any:
        before = len(compilations)
        found = asked(self, *given, **options)
        searches.append(len(compilations) - before)
        return found

    monkeypatch.setattr(Localizer, "ask", ask)
    frames = [image[:90, :160] for image in images(5, 160)]
    for number, frame in enumerate(frames):
        write_image(tmp_path / f"{number}.png", frame)
    query = Query(frames[0], Box(20, 20, 70, 70))
    for look, back in (("first", BothLooks()), ("back", BothLooks(second=1.0))):
        weights = replace(tiny, calibration=Calibration(back=back))
        localizer = Localizer(weights, device="cpu", cache=tmp_path / "c")
        assert localizer.locate(query, Video.open(tmp_path)).versions["look"] == look
        with Localizer(weights, device="cpu", cache=tmp_path / "c").live() as live:
            for number, frame in enumerate(frames):
                live.add(frame, number / 5)
            assert live.ask(query).versions["look"] == look
    assert searches == [0] * 4


def test_a_session_that_does_not_look_back_gets_ready_for_none(
    tiny: Weights, compilations: list[bool], tmp_path: Path
) -> None:
    weights, compiled_graphs = replace(tiny, calibration=Calibration(back=BothLooks(second=1.0))), []
    for words in ([], ["search.look_back=false"]):
        config = override(LocalizerConfig(), words)
        with Localizer(weights, device="cpu", config=config, cache=tmp_path).live() as live:
            before = len(compilations)
            live.add(images(1, 160)[0][:90], 0.0)
            compiled_graphs.append(len(compilations) - before)
    assert compiled_graphs[0] == compiled_graphs[1] + 1


def test_reading_compiles_the_encoder_alone(tiny: Weights, compilations: list[bool], tmp_path: Path) -> None:
    """And only where something is left to read before the query time."""
    for number in range(STRETCH + 2):
        write_image(tmp_path / f"{number:02}.png", images(1, 160)[0])
    for until_s, more in ((2.0, 1), (2.0, 0), (None, 1), (None, 0)):
        localizer = Localizer(tiny, device="cpu", cache=tmp_path / "c")
        before = len(compilations)
        localizer.encode(Video.open(tmp_path), until_s=until_s)
        assert len(compilations) == before + more


@pytest.mark.parametrize("without", [False, True])
def test_without_tiles_the_decoder_is_in_full_precision(
    tiny: Weights, monkeypatch: pytest.MonkeyPatch, compilations: list[bool], without: bool
) -> None:
    monkeypatch.setattr(compiled, "without_tiles", lambda: without)
    predictor = Predictor(tiny, device="cpu")
    predictor.prepare_search(predictor.letterbox(224, 224))
    assert compilations == [True, without, without, without]  # the DPM always


@pytest.mark.parametrize("together", [1, 2, 3])
def test_a_frame_says_the_same_whatever_is_beside_it(together: int) -> None:
    """More frames than are run at once, each with its own answer in its own place; the last may be alone."""
    from openvino import Model
    from openvino import opset13 as op

    frames = op.parameter([-1, 2], np.float32)
    tokens = op.parameter([1, -1, 2], np.float32)
    slow = op.reduce_sum(op.tanh(tokens), op.constant(np.array([1])), False)
    model = Model([op.add(frames, slow), op.negative(frames)], [frames, tokens])
    graph = FrameGraph(model, together=together)
    values = torch.arange(40.0).view(20, 2)
    for count in (3, 5):
        added, negative = graph([values], [torch.ones(1, count, 2)])
        torch.testing.assert_close(added, values + count * np.tanh(1))
        torch.testing.assert_close(negative, -values)


def test_threads_share_a_graph() -> None:
    """Each gets what it asked for."""
    graph = negative()

    def answered(value: float) -> bool:
        frames = torch.full((20, 1000), value)
        return all(torch.equal(graph([frames])[0], -frames) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(answered, range(4)))


def test_threads_share_the_dpm() -> None:
    module = CompiledDpm(preset("tiny").dpm)
    worlds = [(torch.randn(4, 96, 22, 28), torch.randn(count, 96), torch.ones(count)) for count in (60, 90)]
    alone = [module.foreground_map(*world) for world in worlds]

    def answered(number: int) -> bool:
        return all(torch.equal(module.foreground_map(*worlds[number]), alone[number]) for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(answered, range(2)))


def test_an_interrupted_call_waits_for_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read its memory."""
    graph, done = negative(), list[str]()

    def start(*_: object, **__: object) -> None:
        done.append("start")
        if len(done) == 3:
            raise KeyboardInterrupt

    future: Future[Any] = Future()
    future.set_result(
        SimpleNamespace(set_callback=id, start_async=start, wait_all=lambda: done.append("wait"))
    )
    monkeypatch.setattr(graph, "prepare", lambda *_: future)
    with pytest.raises(KeyboardInterrupt):
        graph([torch.ones(5, 2)])
    assert done == ["start", "start", "start", "wait"]


def test_compiling_makes_nobody_wait_but_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on, real = Event(), graphs.compile_model

    def slowly(*given: Any, **options: Any) -> Any:
        assert may_go_on.wait(60)
        return real(*given, **options)

    monkeypatch.setattr(graphs, "compile_model", slowly)
    graph = negative()
    assert not graph.prepare([(2,)]).done()
    may_go_on.set()
    torch.testing.assert_close(graph([torch.ones(3, 2)])[0], -torch.ones(3, 2))


def test_what_could_not_be_compiled_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be short once."""
    graph, real, failures = negative(), graphs.compile_model, [MemoryError("none left")]

    def compile_model(*given: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*given, **options)

    monkeypatch.setattr(graphs, "compile_model", compile_model)
    with pytest.raises(MemoryError):
        graph([torch.ones(3, 2)])
    torch.testing.assert_close(graph([torch.ones(3, 2)])[0], -torch.ones(3, 2))


def test_what_nobody_waits_for_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes that newer ones pushed out, and all that wait when the program ends; they may come again."""
    may_go_on, real, compiled_shapes = Event(), graphs.compile_model, list[int]()

    def slowly(model: Any, **options: Any) -> Any:
        assert may_go_on.wait(60)
        compiled_shapes.append(model.inputs[0].shape[1])
        return real(model, **options)

    monkeypatch.setattr(graphs, "compile_model", slowly)
    monkeypatch.setattr(graphs, "compiler", cache(lambda: ThreadPoolExecutor(1)))
    graph, widths = negative(), range(1, MOST_SHAPES + 4)
    queues = [graph.prepare([(width,)]) for width in widths]
    assert [queue.cancelled() for queue in queues] == [1 < width < 4 for width in widths]  # 1 has begun
    Timer(0.1, may_go_on.set).start()
    graphs.stop_compiling()
    assert compiled_shapes == [1]
    torch.testing.assert_close(graph([torch.ones(1, 7)])[0], -torch.ones(1, 7))
    assert compiled_shapes == [1, 7]


WITHOUT_WAITING = """
import time
from egohieraloc.models.graphs import FrameGraph

def compiled(graph, shapes):
    time.sleep(0.2)
    print("compiled")

FrameGraph._compiled = compiled
for width in range(5):
    FrameGraph(None).prepare([(width,)])
"""


def test_the_end_of_a_script_waits_for_no_graph_that_waits() -> None:
    command = [sys.executable, "-c", WITHOUT_WAITING]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout in ("", "compiled\n")
    assert not done.stderr


def negative() -> FrameGraph:
    from openvino import Model
    from openvino import opset13 as op

    frames = op.parameter([-1, -1], np.float32)
    return FrameGraph(Model([op.negative(frames)], [frames]))


def test_few_shapes_are_kept_ready(compilations: list[bool]) -> None:
    """The ones used last: a server that reads videos of many shapes does not grow."""
    graph = negative()

    def run(width: int) -> None:
        torch.testing.assert_close(graph([torch.ones(2, width)])[0], -torch.ones(2, width))

    for width in range(1, MOST_SHAPES + 1):
        run(width)
    run(1)
    run(MOST_SHAPES + 1)
    assert len(compilations) == MOST_SHAPES + 1
    run(1)
    assert len(compilations) == MOST_SHAPES + 1
    run(2)
    assert len(compilations) == MOST_SHAPES + 2


def test_both_parts_are_in_8_bits(tiny: Weights) -> None:
    assert tiny.parts is not None
    for name, graph in read_parts(tiny.parts, tiny.network).items():
        assert graph.xml.count(b'type="FakeQuantize"') > 10, name


def test_stored_features_of_both_are_kept_apart(tiny: Weights) -> None:
    names = {Predictor(tiny, device="cpu", engine=e).features_fingerprint for e in ("torch", "openvino")}
    assert len(names) == 2
    assert tiny.features_fingerprint in names


@pytest.mark.parametrize("canvas", [(224, 224), (192, 224), (256, 160)])
def test_both_say_nearly_the_same(tiny: Weights, canvas: tuple[int, int]) -> None:
    """Encoded by either, a query prepared and two runs decoded: random weights round worse than trained."""
    canvases = [RANDOM.integers(0, 256, (*canvas, 3), np.uint8) for _ in range(4)]
    query = Query(images(1, 96)[0], Box(20, 20, 70, 70))
    said = {}
    for engine in ("torch", "openvino"):
        predictor = Predictor(tiny, device="cpu", engine=engine)
        packed = predictor.encode(canvases)
        prepared = predictor.prepare(query)
        state = predictor.start(prepared, runs=2)
        answers, _ = predictor.decode(prepared, packed, state)
        descriptors = packed.match.astype(np.float64)
        said[engine] = descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True), answers
    cosine = (said["torch"][0] * said["openvino"][0]).sum(1)
    assert cosine.mean() > 0.97
    scores = [[answer.score for answer in answers] for _, answers in said.values()]
    np.testing.assert_allclose(scores[0], scores[1], atol=0.1)


@pytest.mark.parametrize("canvas", [(224, 224), (192, 224)])
def test_the_decoder_is_torchs(tiny: Weights, canvas: tuple[int, int]) -> None:
    """From the same features: only the precision differs."""
    predictors = [Predictor(tiny, device="cpu", engine=e) for e in ("torch", "openvino")]
    packed = predictors[0].encode([RANDOM.integers(0, 256, (*canvas, 3), np.uint8) for _ in range(3)])
    query = predictors[0].prepare(Query(images(1, 96)[0], Box(20, 20, 70, 70)))
    outputs = [p.match(query, packed, p.start(query))[0].ram for p in predictors]
    for name in ("mask_logits", "cell_logits", "boxes", "score_logit"):
        one, other = (getattr(output, name).float() for output in outputs)
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.05)


def test_the_maps_are_torchs(tiny: Weights) -> None:
    """With sets of many tokens, of fewer than are averaged over, and of none."""
    network = tiny.network
    fast = CompiledDpm(network.config.dpm)
    cells, tokens = (
        torch.nn.functional.normalize(torch.randn(*shape), dim=1) for shape in ((3, 8, 4, 4), (9, 8))
    )
    foreground = torch.tensor([[1, 1, 0.5, 1, 0, 0, 0, 0, 0]])
    for background in (torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 0.0]]), torch.eye(9)[:1], torch.zeros(1, 9)):
        given = cells, tokens[None], foreground, background
        for one, other in zip(fast(*given), network.dpm(*given), strict=True):
            torch.testing.assert_close(one, other)


def test_scores_alone_are_those_of_the_whole_decoder(tiny: Weights) -> None:
    packed = Predictor(tiny, device="cpu").encode(images(3, tiny.network.config.input_size))
    for engine in ("torch", "openvino"):
        predictor = Predictor(tiny, device="cpu", engine=engine)
        query = predictor.prepare(Query(images(1, 96)[0], Box(20, 20, 70, 70)))
        whole, _ = predictor.decode(query, packed, predictor.start(query, runs=3))
        np.testing.assert_allclose(predictor.scores(query, packed), [each.score for each in whole], atol=1e-6)


def test_masks_drawn_later_are_those_drawn_at_once(tiny: Weights) -> None:
    predictor = Predictor(tiny, device="cpu")
    packed = predictor.encode(images(3, tiny.network.config.input_size))
    query = predictor.prepare(Query(images(1, 96)[0], Box(20, 20, 70, 70)))
    at_once, _ = predictor.decode(query, packed, predictor.start(query))
    rough, _ = predictor.decode(query, packed, predictor.start(query), outlined=False)
    for one, later in zip(at_once, predictor.outlined(packed, rough), strict=True):
        assert one.score == later.score
        assert one.box == later.box
        np.testing.assert_array_equal(one.mask, later.mask)


def test_masks_of_some_frames(tiny: Weights) -> None:
    predictor = Predictor(tiny, device="cpu")
    features = unpack(predictor.encode(images(3, tiny.network.config.input_size)), predictor.device)
    query = predictor.prepare(Query(images(1, 96)[0], Box(20, 20, 70, 70))).template
    state = predictor.network.initial_state(query)
    with torch.inference_mode():
        whole = predictor.network.match(query, features, state)[0].ram
        some = predictor.network.match(query, features, state, outlined=torch.tensor([2, 0]))[0].ram
    torch.testing.assert_close(some.mask_logits, whole.mask_logits[[2, 0]])
    torch.testing.assert_close(some.cell_logits, whole.cell_logits)


def test_parts_of_other_weights_are_refused(tiny: Weights, tmp_path: Path) -> None:
    torch.manual_seed(1)
    path = tmp_path / "other.safetensors"
    save_weights(path, EgoHieraLocNet(preset("tiny")))
    other = replace(load_weights(path), parts=tiny.parts)
    with pytest.raises(WeightsError, match="other weights"):
        Predictor(other, device="cpu", engine="openvino")
    with pytest.warns(RuntimeWarning, match="Torch is used"):
        assert Predictor(other, device="cpu").engine == "torch"


def test_settings_of_the_search_leave_the_parts_usable(tiny: Weights) -> None:
    config = tiny.network.config
    searched = tiny.with_settings(replace(config, dpm=replace(config.dpm, top_k=1)))
    assert Predictor(searched, device="cpu", engine="openvino").engine == "openvino"
    decoding = tiny.with_settings(replace(config, ram=replace(config.ram, feedback=False)))
    with pytest.raises(WeightsError, match="settings"):
        Predictor(decoding, device="cpu", engine="openvino")


def test_a_damaged_file_is_named(tiny: Weights, tmp_path: Path) -> None:
    broken = tmp_path / "broken.openvino"
    broken.write_bytes(b"not a zip file")
    with pytest.raises(WeightsError, match=r"broken\.openvino cannot be read"):
        read_parts(broken, tiny.network)
    with zipfile.ZipFile(broken, "w") as file:
        file.writestr("about.json", "{}")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_parts(broken, tiny.network)
    assert tiny.parts is not None
    whole = tiny.parts.read_bytes()
    place = whole.index(b"about.json") + 14
    broken.write_bytes(whole[:place] + bytes(8) + whole[place + 8 :])
    with pytest.raises(WeightsError, match="cannot be read"):
        read_parts(broken, tiny.network)
    with zipfile.ZipFile(broken, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("about.json", "encoder.xml", "encoder.bin", "decoder.xml", "decoder.bin"):
            file.writestr(name, "[]" if name == "about.json" else "")
    with pytest.raises(WeightsError, match="was made of other weights"):
        read_parts(broken, tiny.network)


def test_a_small_file_gets_little_memory(
    tiny: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MAX_BYTES", 100_000)
    bomb = tmp_path / "bomb.openvino"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("about.json", "encoder.xml", "encoder.bin", "decoder.xml", "decoder.bin"):
            file.writestr(name, bytes(60_000 if name == "decoder.bin" else 20_000))
    with pytest.raises(WeightsError, match="unpacks to more than"):
        read_parts(bomb, tiny.network)


def test_where_it_cannot_run(tiny: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="one of torch, compiled, openvino, got 'onnx'"):
        Predictor(tiny, device="cpu", engine="onnx")
    with pytest.raises(WeightsError, match=r"no \.openvino file"):
        Predictor(replace(tiny, parts=None), device="cpu", engine="openvino")
    with pytest.raises(ConfigError, match="--device cpu"):
        compiled.usable_parts(tiny, torch.device("cuda"), "openvino")
    with pytest.raises(ConfigError, match="compiled is for CUDA"):
        Predictor(tiny, device="cpu", engine="compiled")
    for engine in (None, "torch", "compiled"):
        assert compiled.usable_parts(tiny, torch.device("cuda"), engine) is None

    def missing() -> None:
        raise ModuleNotFoundError("No module named 'openvino'")

    monkeypatch.setattr(compiled, "core", missing)
    with pytest.raises(ConfigError, match="pip install openvino"):
        Predictor(tiny, device="cpu", engine="openvino")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.warns(RuntimeWarning, match="x86"):
        assert Predictor(tiny, device="cpu").engine == "torch"


def test_the_shipped_parts_answer_as_torch_does(tmp_path: Path) -> None:
    """The bundled clip: the same appearance, scores within 0.02 on average."""
    weights = load_weights(find_weights("mini"))
    if weights.parts is None:
        pytest.skip("made by `egohieraloc quantize` for the weights that ship")
    query = Query.from_image(demo.QUERY, box=demo.load_truth().query_box)
    video = Video.open(demo.CLIP)
    indices = video.sample_indices(5.0)[115:165]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localizers = [
            Localizer(weights, device="cpu", engine=e, cache=tmp_path) for e in ("torch", "openvino")
        ]
    results = [each.ask(query, each.encode(video, indices=indices)) for each in localizers]
    tracks = [result.track for result in results]
    assert all(isinstance(track, ResponseTrack) for track in tracks)
    assert abs(tracks[0].start - tracks[1].start) <= 1
    assert abs(tracks[0].end - tracks[1].end) <= 1
    scores = [result.curve.raw for result in results]
    decoded = (scores[0] > 0) & (scores[1] > 0)  # what looks unlike the query at first sight is not decoded
    assert decoded.sum() > 5
    assert np.abs(scores[0] - scores[1])[decoded].mean() < 0.02
