"""Four capture domains, each with the habits of its sensors and of its attackers.

They stand for the four data sets of the MMDG benchmark (CeFA, PADISI, SURF, WMCA) in how far they
differ, not in what they show. Numbers that the sensors' noise is given in refer to a face whose
height spans about 1.
"""

from dataclasses import dataclass

from zoo.face_files import KINDS

ATTACKS = KINDS[1:-1]


@dataclass(frozen=True)
class Domain:
    """One domain.

    Attributes:
        depth_noise: Standard deviation of the depth at height 0.
        hole_rate: Share of the depth's pixels without a value.
        ir_gain: Of the infrared camera.
        ir_noise: Standard deviation.
        cast: Gain of red, green and blue.
        blur: Of the colour camera, standard deviation in pixels of a 48-pixel frame.
        ambient: Share of ambient light.
        sunlight: How much daylight leaks into the infrared image, at most.
        mix: Shares of print, replay, mask and cut print among the attacks.
        cue: How much brighter backgrounds are behind live faces: a cue without a cause, whose sign
            changes from domain to domain.
        fault_rate: Share of the samples with a faulty sensor.
    """

    depth_noise: float
    hole_rate: float
    ir_gain: float
    ir_noise: float
    cast: tuple[float, float, float]
    blur: float
    ambient: float
    sunlight: float
    mix: tuple[float, float, float, float]
    cue: float
    fault_rate: float


DOMAINS = {
    "W": Domain(
        depth_noise=0.15,
        hole_rate=0.05,
        ir_gain=1.0,
        ir_noise=0.20,
        cast=(1.0, 1.0, 1.0),
        blur=0.0,
        ambient=0.4,
        sunlight=0.2,
        mix=(0.25, 0.25, 0.25, 0.25),
        cue=0.25,
        fault_rate=0.3,
    ),
    "C": Domain(
        depth_noise=0.20,
        hole_rate=0.12,
        ir_gain=0.7,
        ir_noise=0.25,
        cast=(1.08, 1.0, 0.85),
        blur=0.6,
        ambient=0.3,
        sunlight=0.35,
        mix=(0.45, 0.40, 0.08, 0.07),
        cue=-0.25,
        fault_rate=0.3,
    ),
    "S": Domain(
        depth_noise=0.30,
        hole_rate=0.25,
        ir_gain=1.3,
        ir_noise=0.28,
        cast=(0.9, 1.0, 1.1),
        blur=0.9,
        ambient=0.55,
        sunlight=0.5,
        mix=(0.25, 0.10, 0.15, 0.50),
        cue=0.20,
        fault_rate=0.45,
    ),
    "P": Domain(
        depth_noise=0.22,
        hole_rate=0.08,
        ir_gain=0.9,
        ir_noise=0.30,
        cast=(0.95, 1.05, 0.95),
        blur=0.3,
        ambient=0.2,
        sunlight=0.1,
        mix=(0.15, 0.15, 0.60, 0.10),
        cue=-0.20,
        fault_rate=0.3,
    ),
}
