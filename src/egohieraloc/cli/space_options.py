"""The options of --3d: where camera poses, depth and scale come from, if not from the video."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from egohieraloc.geometry.reconstruction import Reconstruction
from egohieraloc.geometry.reference import (
    CameraHeight,
    PosedImages,
    Reference,
    parse_known_length,
    read_known_positions,
    read_posed_images,
)
from egohieraloc.video.aria import AriaRecording
from egohieraloc.video.folder import Folder
from egohieraloc.video.reader import Video

if TYPE_CHECKING:
    from egohieraloc.localize import DepthSource, SpaceSources


@dataclass(frozen=True)
class SpaceOptions:
    """The options as given."""

    cameras: Annotated[
        Path | None,
        typer.Option(
            help="With --3d: poses of a device or program: cameras.json, COLMAP, transforms.json, TUM, "
            "EuRoC, Record3D, Polycam, Aria's MPS."
        ),
    ] = None
    intrinsics: Annotated[
        Path | None, typer.Option(help="The lens, for --cameras that hold none (TUM, EuRoC).")
    ] = None
    time_offset: Annotated[
        float | None, typer.Option(help="Seconds on the clock of --cameras at the start of the video.")
    ] = None
    cameras_unit: Annotated[
        Literal["m", "sfm"] | None, typer.Option(help="The unit of --cameras where the file does not say it.")
    ] = None
    depth: Annotated[
        Path | None,
        typer.Option(help="With --3d: metric depth maps: a folder (PNG, EXR, .npy), or Aria's depth VRS."),
    ] = None
    depth_model: Annotated[
        str | None, typer.Option(help="With --3d: a depth network of the hub, by name or folder.")
    ] = None
    positions: Annotated[
        Path | None, typer.Option(help="For metres: known camera positions, lines 'name x y z'.")
    ] = None
    posed_images: Annotated[
        Path | None, typer.Option(help="For metres: a folder of five or more images with cameras.json.")
    ] = None
    known_length: Annotated[
        str | None,
        typer.Option(help="For metres: s,x1,y1,x2,y2,m: at s seconds these two pixels are m apart."),
    ] = None
    camera_height: Annotated[
        float | None, typer.Option(help="For metres: how high above the floor the camera is carried.")
    ] = None

    def sources(self, video: Video, *, in_3d: bool, device: str | None) -> SpaceSources | None:
        """What they describe, read and checked before anything is computed; None without --3d."""
        if not in_3d:
            if self.given:
                raise typer.BadParameter("Camera poses, depth and what makes them metric need --3d.")
            return None
        from egohieraloc.localize import SpaceSources

        cameras = self._cameras(video)
        reference = self._reference(video)
        if cameras is not None and isinstance(reference, PosedImages):
            raise typer.BadParameter("--posed-images are registered into a map; --cameras brings none.")
        if cameras is None and reference is None:
            cameras = _recorded(video)
        return SpaceSources(cameras=cameras, depth=self._depth(video, device), reference=reference)

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(getattr(self, option.name) is not None for option in fields(self))

    def _cameras(self, video: Video) -> Reconstruction | None:
        """The given poses; what was found out about them is told on the way."""
        if self.cameras is None:
            if (self.intrinsics, self.time_offset, self.cameras_unit) != (None, None, None):
                raise typer.BadParameter("--intrinsics, --time-offset and --cameras-unit are of --cameras.")
            return None
        from egohieraloc.recorded import CameraOptions, cameras_for

        options = CameraOptions(
            intrinsics=self.intrinsics, time_offset_s=self.time_offset or 0.0, unit=self.cameras_unit
        )
        cameras, words = cameras_for(video, self.cameras, options)
        for line in words:
            typer.echo(line, err=True)
        return cameras

    def _reference(self, video: Video) -> Reference | None:
        """What makes the camera path metric: one of the four, or nothing."""
        given = (self.positions, self.posed_images, self.known_length, self.camera_height)
        if sum(option is not None for option in given) > 1:
            raise typer.BadParameter(
                "Give one of --positions, --posed-images, --known-length and --camera-height: "
                "each sets the scale."
            )
        if self.positions is not None:
            images = video.backend.images if isinstance(video.backend, Folder) else ()
            return read_known_positions(self.positions, [image.name for image in images])
        if self.posed_images is not None:
            return read_posed_images(self.posed_images)
        if self.known_length is not None:
            return parse_known_length(self.known_length)
        return None if self.camera_height is None else CameraHeight(self.camera_height)

    def _depth(self, video: Video, device: str | None) -> DepthSource | None:
        if self.depth is not None and self.depth_model is not None:
            raise typer.BadParameter("Give --depth or --depth-model, not both.")
        if self.depth is not None:
            from egohieraloc.geometry.device_depth import depth_of_device
            from egohieraloc.recorded import frame_table

            clock = video.backend.device_ns if isinstance(video.backend, AriaRecording) else None
            return depth_of_device(self.depth, frame_table(video), clock)
        if self.depth_model is None:
            return None
        from egohieraloc.models.depth import DepthNetwork

        network = DepthNetwork.from_pretrained(self.depth_model, device=device or "cpu")
        return lambda indices: dict(network.predict(video.frames(sorted(indices))))


def _recorded(video: Video) -> Reconstruction | None:
    """Poses in the recording itself or beside it; how many frames have one is told on the way."""
    from egohieraloc.geometry.given import gaps
    from egohieraloc.recorded import recorded_cameras

    cameras = recorded_cameras(video)
    if cameras is not None:
        typer.echo(f"Poses were found with {video.path.name}: {gaps(cameras)}.", err=True)
    return cameras
