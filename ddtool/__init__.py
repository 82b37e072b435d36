"""Deploy, run, measure and debug DDTree speculative decoding on SGLang."""

__version__ = "0.1.0"
