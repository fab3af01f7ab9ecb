"""Which promising samples to decode: a few of them alone first, then the pieces that may decide.

A probe is the score of the most similar one of some neighbouring samples, without state or mask. Decoded are
the pieces of the best probes, until nothing undecoded promises more than was found, those later ones that may
still hold the last appearance, and the neighbours of what was found, as far as it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from egohieraloc.config import TemporalConfig
from egohieraloc.inference.temporal import TemporalChoice
from egohieraloc.types import Floats

HOPE = 0.5  # a piece whose probe has this share of the highest score may still hold the last appearance
LATEST = 2  # of these decoded in one round
PIECE = 8  # samples decoded or not together, at most


@dataclass(frozen=True)
class Piece:
    """Some promising samples; pieces of one run follow each other without a gap."""

    number: int  # in order of time
    run: int
    samples: tuple[int, ...]
    probed: int | None  # one of the samples, where this piece stands for its neighbours too


def pieces_of(runs: Sequence[Sequence[int]], coarse: Floats, size: int) -> list[Piece]:
    """Runs of samples in pieces, of which one for every `size` samples is probed."""
    pieces: list[Piece] = []
    for number, run in enumerate(runs):
        for part in _parts(run, size):
            # Only even samples were looked at: one of them where there is any.
            probed = max(part, key=lambda sample: (sample % 2 == 0, coarse[sample], -sample))
            for piece in _parts(part, PIECE):
                pieces.append(Piece(len(pieces), number, piece, probed if probed in piece else None))
    return pieces


def joined_pieces(pieces: Sequence[Piece]) -> list[tuple[int, list[int]]]:
    """Run and samples of each stretch of pieces, given in order of time, that follow each other in a run."""
    joined: list[tuple[int, list[int]]] = []
    last = -1
    for piece in pieces:
        if joined and joined[-1][0] == piece.run and last == piece.number - 1:
            joined[-1][1].extend(piece.samples)
        else:
            joined.append((piece.run, list(piece.samples)))
        last = piece.number
    return joined


def _parts(samples: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """At most `size` of consecutive samples each, nearly equal."""
    return [tuple(part.tolist()) for part in np.array_split(np.array(samples), -(-len(samples) // size))]


@dataclass(frozen=True, eq=False)
class Probed:
    """P pieces in order of time and their probes, and which of them have been decoded."""

    pieces: Sequence[Piece]
    probes: Floats  # (P,) 0 where there is none
    done: NDArray[np.bool_]  # (P,)
    stride: int  # from sample to sample of a run

    def next(self, choice: TemporalChoice, config: TemporalConfig, *, whole: bool = False) -> list[int]:
        """The pieces to decode next, none when the answer is settled.

        choice: among what was decoded; whole: any candidate may become the answer, so all of each is wanted.
        """
        highest = max(float(self.probes.max(initial=0.0)), float(choice.curve.smooth.max(initial=0.0)))
        found = () if choice.chosen is None else (choice.chosen, *choice.alternatives)
        wanted = {*self._latest(choice, HOPE * highest), *self._higher(choice)}
        wanted |= {*self._best(1 + config.max_alternatives - len(found), config.extend_share * highest)}
        for start, end in found if whole else found[:1]:
            wanted |= {*self._beside(start, end, config.bridge + self.stride)}
        return sorted(wanted)

    def _latest(self, choice: TemporalChoice, least: float) -> list[int]:
        """After the appearance that is the last one so far."""
        end = -1 if choice.chosen is None else choice.chosen[1]
        hopeful = np.flatnonzero(~self.done & (self.probes >= least))
        return [number for number in hopeful.tolist() if self.pieces[number].samples[0] > end][-LATEST:]

    def _higher(self, choice: TemporalChoice) -> list[int]:
        """The surest one, where it may show the object better than all that was decoded: the last appearance
        is measured by the best."""
        left = np.where(self.done, 0.0, self.probes)
        surest = int(left.argmax()) if len(left) else 0
        return [surest] if left.max(initial=0.0) > choice.curve.smooth.max(initial=0.0) else []

    def _best(self, count: int, least: float) -> list[int]:
        """Of rises of the probes of which nothing was decoded, one piece each."""
        rise = self._rises(least)
        begun, best = {*rise[self.done].tolist()}, list[int]()
        for number in np.argsort(-self.probes, kind="stable").tolist():
            if len(best) >= count or self.probes[number] < least:
                break
            if rise[number] not in begun:
                begun.add(int(rise[number]))
                best.append(number)
        return best

    def _rises(self, least: float) -> NDArray[np.int64]:
        """(P,) which pieces belong together: neighbours of one run that are probed high, or not at all."""
        run = np.array([piece.run for piece in self.pieces], int)
        high = (self.probes >= least) | np.array([piece.probed is None for piece in self.pieces], bool)
        return np.cumsum((np.diff(run, prepend=-1) != 0) | (np.diff(high, prepend=False) != 0))

    def _beside(self, start: int, end: int, reach: int) -> list[int]:
        """The pieces before and after an appearance that may go on in them."""
        return [
            number
            for number in np.flatnonzero(~self.done).tolist()
            if 0 < self.pieces[number].samples[0] - end <= reach
            or 0 < start - self.pieces[number].samples[-1] <= reach
        ]
