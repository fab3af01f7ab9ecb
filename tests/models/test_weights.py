"""Weights on disk: what is written comes back, and every bad file is named with a remedy."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from egohieraloc.cli import app
from egohieraloc.config import QueryMaskConfig, preset
from egohieraloc.errors import OutputError, WeightsError
from egohieraloc.models import weights as module
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import (
    Calibration,
    average_networks,
    copy_weights,
    find_weights,
    load_weights,
    save_weights,
)
from egohieraloc.settings import override


@pytest.fixture(scope="module")
def network() -> EgoHieraLocNet:
    torch.manual_seed(0)
    return EgoHieraLocNet(override(preset("tiny"), ["qam.decay=0.3", "query_sizes=[64,32]"]))


@pytest.fixture
def path(tmp_path: Path, network: EgoHieraLocNet) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_weights(path, network, Calibration(slope=2.0, offset=-1.0, threshold=0.4))
    return path


def rewrite(path: Path, header: dict[str, str] | None = None, **tensors: torch.Tensor) -> None:
    """Write the file again with parts of its header or some tensors replaced."""
    with safe_open(path, "pt") as file:
        old = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    metadata.pop("checksum", None)
    save_file({**old, **tensors}, path, metadata={**metadata, **(header or {})})


def test_round_trip_keeps_settings_calibration_and_weights(path: Path, network: EgoHieraLocNet) -> None:
    loaded = load_weights(path)
    assert loaded.network.config == network.config
    assert loaded.calibration == Calibration(slope=2.0, offset=-1.0, threshold=0.4)
    own, read = network.state_dict(), loaded.network.state_dict()
    assert own.keys() == read.keys()
    for name, value in own.items():
        assert read[name].dtype == value.dtype
        if value.ndim > 1:
            torch.testing.assert_close(read[name], value.half().float(), atol=0, rtol=0)
        else:
            assert torch.equal(read[name], value), name
    assert not loaded.network.training
    assert not any(p.requires_grad for p in loaded.network.parameters())


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    place = len(whole) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(WeightsError, match=r"is damaged: its checksum is wrong\. Fetch or train it again"):
        load_weights(path)
    module.copy_weights(find_weights("mini"), path, Calibration())
    with safe_open(path, "pt") as file, safe_open(find_weights("mini"), "pt") as shipped:
        assert file.metadata()["checksum"] == shipped.metadata()["checksum"]


def test_file_is_in_half_precision_and_whole(path: Path, network: EgoHieraLocNet) -> None:
    parameters = sum(p.numel() for p in network.parameters())
    assert path.stat().st_size < 2.5 * parameters
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_second_round_trip_changes_nothing(path: Path, tmp_path: Path) -> None:
    first = load_weights(path)
    save_weights(tmp_path / "again.safetensors", first.network, first.calibration)
    again = load_weights(tmp_path / "again.safetensors")
    for one, other in zip(first.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_fingerprint_follows_the_content(path: Path, network: EgoHieraLocNet, tmp_path: Path) -> None:
    before = load_weights(path).fingerprint
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(path.read_bytes())
    assert load_weights(copy).fingerprint == before
    rewrite(path, coarse=torch.tensor([9.0, -5.0]))
    assert load_weights(path).fingerprint != before


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"no weights file at .*gone.safetensors. Give a preset's name"):
        load_weights(tmp_path / "gone.safetensors")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"\xff" * 64])
def test_corrupt(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=r"cannot be read as weights .* Fetch or train it again"):
        load_weights(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_truncated(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(WeightsError, match="cannot be read as weights"):
        load_weights(path)


def test_foreign(tmp_path: Path, network: EgoHieraLocNet) -> None:
    save_file(network.backbone.state_dict(), tmp_path / "backbone.safetensors")
    with pytest.raises(WeightsError, match=r"not a weights file of this package .*Backbone checkpoints"):
        load_weights(tmp_path / "backbone.safetensors")


def test_another_format_number(path: Path) -> None:
    rewrite(path, {"format": "99"})
    with pytest.raises(WeightsError, match="format 99, wanted 1"):
        load_weights(path)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_not_finite(path: Path, value: float) -> None:
    rewrite(path, coarse=torch.tensor([value, 0.0]))
    with pytest.raises(WeightsError, match=r"not finite. Fetch or train it again"):
        load_weights(path)


@pytest.mark.parametrize(
    ("network_json", "message"),
    [
        ('{"qam": {"decya": 0.4}}', r"Unknown setting 'qam.decya'; did you mean 'qam.decay'\?"),
        ('{"input_size": "large"}', "'input_size' must be int"),
        ('{"backbone": {"name": "resnet9000"}}', "No backbone is called 'resnet9000'"),
        ("[1, 2]", "must be a table"),
        ("{", "broken settings"),
    ],
)
def test_broken_settings(path: Path, network_json: str, message: str) -> None:
    rewrite(path, {"network": network_json})
    with pytest.raises(WeightsError, match=message) as caught:
        load_weights(path)
    assert "fetch or train it again" in str(caught.value)


def test_header_without_settings(path: Path) -> None:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"format": "1"})
    with pytest.raises(WeightsError, match="broken settings"):
        load_weights(path)


def test_tensors_that_do_not_fit(path: Path, network: EgoHieraLocNet) -> None:
    rewrite(path, extra=torch.zeros(1))
    with pytest.raises(WeightsError, match=r"does not fit its own settings: see extra \(1 such\)"):
        load_weights(path)


def test_a_tensor_of_another_shape(path: Path) -> None:
    rewrite(path, coarse=torch.zeros(3))
    with pytest.raises(WeightsError, match=r"see coarse \(1 such\)"):
        load_weights(path)


def test_failed_writing_leaves_the_old_file(
    path: Path, network: EgoHieraLocNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(tensors: object, target: Path, metadata: object) -> None:
        Path(target).write_bytes(before[:1000])
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        save_weights(path, network)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_unwritable_folder(tmp_path: Path, network: EgoHieraLocNet) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="Choose a folder you may write to"):
        save_weights(tmp_path / "file" / "w.safetensors", network)


def test_find_by_name_or_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_weights(path) == path
    assert find_weights("gone.safetensors") == Path("gone.safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "huge").mkdir()  # a folder that happens to have the name is not meant
    with pytest.raises(WeightsError, match=r"No trained weights 'huge' .*egohieraloc train"):
        find_weights("huge")


def test_shipped_weights_are_found_by_name(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / "weights").mkdir(parents=True)
    path.rename(package / "weights" / "mini.safetensors")
    (package / "weights" / "README.md").write_text("about")
    monkeypatch.setattr(module.resources, "files", lambda name: package)
    assert find_weights("mini") == package / "weights" / "mini.safetensors"
    with pytest.raises(WeightsError, match=r"there are: mini\)"):
        find_weights("README")


def test_header_is_readable_without_this_package(path: Path, network: EgoHieraLocNet) -> None:
    with safe_open(path, "pt") as file:
        header = file.metadata()
    assert json.loads(header["network"])["qam"]["decay"] == 0.3
    assert json.loads(header["calibration"])["threshold"] == 0.4


def test_an_average_of_files(tmp_path: Path, network: EgoHieraLocNet) -> None:
    files = []
    for number, factor in enumerate((1.0, 2.0, 6.0)):
        scaled = EgoHieraLocNet(network.config)
        scaled.load_state_dict({name: factor * value for name, value in network.state_dict().items()})
        files.append(tmp_path / f"{number}.safetensors")
        save_weights(files[-1], scaled)
    own = network.state_dict()
    for name, value in average_networks(files).state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(value, 3 * own[name], rtol=2e-3, atol=1e-6)
    alone = load_weights(files[1]).network.state_dict()
    for name, value in average_networks(files[1:2]).state_dict().items():
        torch.testing.assert_close(value, alone[name])


def test_no_average_of_other_networks(tmp_path: Path, path: Path, network: EgoHieraLocNet) -> None:
    save_weights(tmp_path / "b.safetensors", EgoHieraLocNet(override(network.config, ["qam.decay=0.4"])))
    with pytest.raises(WeightsError, match=r"b\.safetensors has other network settings than .*tiny"):
        average_networks([path, tmp_path / "b.safetensors"])


def test_masks_may_have_been_calibrated_differently(tmp_path: Path, path: Path) -> None:
    """A recipe asks for the mean of new weights and of those they began with, which are calibrated."""
    calibrated = tmp_path / "calibrated.safetensors"
    copy_weights(path, calibrated, Calibration(), query_mask=QueryMaskConfig(slope=0.3, offset=0.1))
    mean = average_networks([path, calibrated])
    for name, value in load_weights(path).network.state_dict().items():
        torch.testing.assert_close(mean.state_dict()[name], value)


def test_average_takes_names_and_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "averaged.safetensors"
    assert CliRunner().invoke(app, ["average", "mini", "--out", str(out)]).exit_code == 0
    assert load_weights(out).network.config == load_weights(find_weights("mini")).network.config
    refused = CliRunner().invoke(app, ["average", "mini", "--out", str(tmp_path)])
    assert "is a folder. Give the name of a file" in str(refused.exception)


def test_average_is_stored_in_8_bits(tmp_path: Path, path: Path, network: EgoHieraLocNet) -> None:
    out = tmp_path / "averaged.safetensors"
    ran = CliRunner().invoke(app, ["average", str(path), str(path), "--out", str(out), "--8-bit"])
    assert ran.exit_code == 0, ran.output
    with safe_open(out, "pt") as file:
        assert torch.int8 in {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    averaged = load_weights(out)
    assert averaged.calibration == Calibration()
    for name, value in averaged.network.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"stray:scale": torch.ones(4)}, "stray"),
        ({"coarse:scale": torch.ones(7)}, "coarse"),
        ({"coarse": torch.tensor([True, False])}, "coarse"),
        ({"coarse": torch.zeros(2, dtype=torch.complex64)}, "coarse"),
        ({"coarse": torch.zeros(2, dtype=torch.float8_e4m3fn)}, "coarse"),
    ],
)
def test_scales_and_types_that_nobody_writes(
    path: Path, changes: dict[str, torch.Tensor], wrong: str
) -> None:
    rewrite(path, **changes)
    with pytest.raises(WeightsError, match=f"see {wrong}|cannot be read as weights"):
        load_weights(path)


@pytest.mark.parametrize(
    "network_json",
    [
        '{"ram": {"width": 30000}}',
        '{"neck": {"width": 4000000000, "match": 4000000000}}',
        '{"neck": {"width": -1}}',
        '{"input_size": 3200000}',
        '{"ram": {"attention_layers": 1000000}}',
        '{"backbone": {"name": "pvt_v1_tiny", "image_size": 320000}}',
    ],
)
def test_a_header_gets_no_more_memory_than_its_file_has_bytes(path: Path, network_json: str) -> None:
    rewrite(path, {"network": network_json})
    before_kb, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(WeightsError, match=r"settings"):
        load_weights(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200_000
    assert time.process_time() - began < 5
