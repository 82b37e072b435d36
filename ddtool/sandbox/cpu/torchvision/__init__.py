"""CPU stand-in for `torchvision`, which has no build for this platform: names exist, calls raise."""

from cpu_standins.raising import become_stand_in

become_stand_in(__name__)
