from enum import Enum, auto


class SpeculativeAlgorithm(Enum):
    NONE = auto()
    EAGLE = auto()
    EAGLE3 = auto()
    STANDALONE = auto()
    NGRAM = auto()
    DFLASH = auto()
